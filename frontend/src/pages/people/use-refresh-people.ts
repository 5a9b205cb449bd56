import { useQueryClient } from "@tanstack/react-query";
import { peopleKeys } from "@/api/people";

/** Returns a function that loads the list of people again. */
export function useRefreshPeople() {
  const client = useQueryClient();
  return () => client.invalidateQueries({ queryKey: peopleKeys.people });
}

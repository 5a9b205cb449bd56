import { useQuery } from "@tanstack/react-query";
import { diagnosisQuery } from "@/api/tasks";

/** What a dialog says: what follows, and from where training would go on, as it is when the dialog opens. */
export function ResumePoint({ task, hint }: { task: string; hint: string }) {
  const { data } = useQuery(diagnosisQuery(task, true));
  return (
    <>
      {hint}
      {data?.resumePoint && <span className="mt-2 block text-ink">{data.resumePoint.message}</span>}
    </>
  );
}

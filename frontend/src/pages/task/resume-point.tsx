import { useQuery } from "@tanstack/react-query";
import { diagnosisQuery } from "@/api/tasks";

/** The text of a dialog, with the checkpoint from which training would continue. */
export function ResumePoint({ task, hint }: { task: string; hint: string }) {
  const { data } = useQuery(diagnosisQuery(task, true));
  return (
    <>
      {hint}
      {data?.resumePoint && <span className="mt-2 block text-ink">{data.resumePoint.message}</span>}
    </>
  );
}

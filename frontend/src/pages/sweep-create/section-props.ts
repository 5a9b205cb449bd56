import type { SweepDraft } from "./draft";

/** Properties of every section of the form. */
export interface SectionProps {
  draft: SweepDraft;
  /** Returns what is wrong with the control of this name. */
  problemOf: (control: string) => string | undefined;
  onChange: (patch: Partial<SweepDraft>) => void;
}

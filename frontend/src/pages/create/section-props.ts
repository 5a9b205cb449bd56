import type { Draft } from "./draft";
import type { ProblemsByField } from "./problems";

/** What every part of the form is given. */
export interface SectionProps {
  draft: Draft;
  problems: ProblemsByField;
  onChange: (patch: Partial<Draft>) => void;
}

import type { Draft } from "./draft";
import type { ProblemsByField } from "./problems";

/** Properties of every section of the form. */
export interface SectionProps {
  draft: Draft;
  problems: ProblemsByField;
  onChange: (patch: Partial<Draft>) => void;
}

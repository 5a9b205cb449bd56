/** What a person typed, as what the API takes. */

/** What is not a number stays as it was typed. */
export function numberOr(text: string): number | string {
  const number = Number(text);
  return text.trim() !== "" && Number.isFinite(number) ? number : text;
}

/** One item a line. */
export function linesOf(text: string): string[] {
  return text.split("\n").filter((line) => line.trim() !== "");
}

/** One NAME=value a line. */
export function environmentOf(text: string): Record<string, string> {
  return Object.fromEntries(
    linesOf(text).map((line) => {
      const [name = "", ...value] = line.split("=");
      return [name.trim(), value.join("=")];
    }),
  );
}

const UNITS: Record<string, number> = { k: 1e3, m: 1e6, b: 1e9, g: 1e9, t: 1e12, 万: 1e4, 亿: 1e8 };

/** Parses a number of parameters: "7B", "350M", "1.3 b", "70亿", "1000000". Returns undefined if it is invalid. */
export function parseModelSize(text: string): number | undefined {
  const match = /^([\d,]*\.?\d+)\s*([kmbgt万亿]?)$/i.exec(text.trim());
  if (!match) return undefined;
  const number = Number((match[1] ?? "").replaceAll(",", "")) * (UNITS[(match[2] ?? "").toLowerCase()] ?? 1);
  return Number.isFinite(number) && number >= 1 ? Math.round(number) : undefined;
}

/** The address holds the state of a list, so that a filtered list can be shared. */

export function readPageNumber(params: URLSearchParams): number {
  const page = Number(params.get("page"));
  return Number.isInteger(page) && page > 0 ? page : 1;
}

/** Returns the filters that are set. */
export function readFilterTexts<Name extends string>(
  params: URLSearchParams,
  names: readonly Name[],
): Partial<Record<Name, string>> {
  const texts = names.map((name) => [name, params.get(name)]).filter(([, value]) => value);
  return Object.fromEntries(texts) as Partial<Record<Name, string>>;
}

/** Sets a filter and returns to the first page. */
export function setFilter(params: URLSearchParams, name: string, value: string): URLSearchParams {
  const next = new URLSearchParams(params);
  if (name !== "page") next.delete("page");
  if (value) next.set(name, value);
  else next.delete(name);
  return next;
}

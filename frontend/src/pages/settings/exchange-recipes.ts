/** How a pipeline's place becomes conditions on its ID token's claims. */

export const RECIPES = ["github", "gitlab", "other"] as const;
export type Recipe = (typeof RECIPES)[number];
export const PLACES = ["branch", "tag", "environment", "any"] as const;
export type Place = (typeof PLACES)[number];

/** The issuer that a recipe means, among those that the operator allows. */
export function chooseIssuer(recipe: Recipe, issuers: readonly string[]): string | undefined {
  const matches = (words: string[]) => issuers.find((issuer) => words.some((word) => issuer.includes(word)));
  if (recipe === "github") return matches(["githubusercontent", "/_services/token"]);
  if (recipe === "gitlab") return matches(["gitlab"]);
  return issuers[0];
}

/** The conditions for a repository, or a project of GitLab, and for where in it a pipeline runs. `value` of a branch or
 * a tag may end with `*`. */
export function buildConditions(
  recipe: "github" | "gitlab",
  path: string,
  place: Place,
  value: string,
): Record<string, string> {
  if (recipe === "github") {
    const refs = { branch: `refs/heads/${value}`, tag: `refs/tags/${value}` };
    return {
      repository: path,
      ...(place === "environment" && { environment: value }),
      ...((place === "branch" || place === "tag") && { ref: refs[place] }),
    };
  }
  return {
    project_path: path,
    ...(place === "environment" && { environment: value }),
    ...((place === "branch" || place === "tag") && { ref: value, ref_type: place }),
  };
}

/** Conditions written one a line as `claim = value`. A line without `=` becomes a claim without a value, which the
 * platform names. */
export function parseConditions(text: string): Record<string, string> {
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(
    lines.map((line) => {
      const [claim = "", ...rest] = line.split("=");
      return [claim.trim(), rest.join("=").trim()];
    }),
  );
}

/** What a pipeline's file needs, as YAML. */
export function buildSnippet(recipe: Recipe, username: string, audience: string): string {
  const address = window.location.origin;
  const option = audience === address ? "" : ` --audience ${audience}`;
  if (recipe === "gitlab") {
    return `train:
  id_tokens:
    FERMI_ID_TOKEN:
      aud: ${audience}
  variables:
    FERMI_URL: ${address}
  script:
    - fermi exchange ${username}
`;
  }
  if (recipe === "github") {
    return `permissions:
  id-token: write
  contents: read
env:
  FERMI_URL: ${address}
steps:
  - run: fermi exchange ${username}${option}
`;
  }
  return `fermi exchange ${username} --url ${address} --file id-token.txt\n`;
}

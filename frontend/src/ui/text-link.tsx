import { Link, type LinkProps } from "react-router";

/** A link that may stand within text: underlined, because colour alone does not tell it from the words around it (WCAG
 * 1.4.1; axe's rule `link-in-text-block`). */
export function TextLink(props: Omit<LinkProps, "className">) {
  return <Link {...props} className="text-accent-ink underline" />;
}

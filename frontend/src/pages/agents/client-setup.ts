import type { RenderedFile } from "@/api/types";

const format = (value: object) => `${JSON.stringify(value, null, 2)}\n`;

/** Returns what is copied into an agent's MCP client: over HTTP, with the command, and for a terminal. */
export function buildClientFiles(url: string, token: string): RenderedFile[] {
  const headers = { Authorization: `Bearer ${token}` };
  const started = { command: "fermi", args: ["mcp", "--url", url], env: { FERMI_TOKEN: token } };
  return [
    { name: "mcp.json", content: format({ mcpServers: { fermi: { url: `${url}/mcp`, headers } } }) },
    { name: "fermi-mcp.json", content: format({ mcpServers: { fermi: started } }) },
    {
      name: "claude.sh",
      content: `claude mcp add --transport http fermi ${url}/mcp --header "Authorization: Bearer ${token}"\n`,
    },
  ];
}

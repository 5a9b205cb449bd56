"""All tools, by name."""

from fermi.mcp.tools import files, inventory, logs, proposals, results, submission, tasks
from fermi.mcp.tools.definition import Tool

TOOLS: dict[str, Tool] = {
    one.name: one for module in (inventory, submission, tasks, logs, results, files, proposals) for one in module.TOOLS
}

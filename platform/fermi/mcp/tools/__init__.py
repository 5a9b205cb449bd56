"""All tools, by name."""

from fermi.mcp.tools import files, inventory, logs, results, submission, tasks
from fermi.mcp.tools.definition import Tool

TOOLS: dict[str, Tool] = {
    one.name: one for module in (inventory, submission, tasks, logs, results, files) for one in module.TOOLS
}

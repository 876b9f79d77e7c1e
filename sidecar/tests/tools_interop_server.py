"""A tool server on the protocol's own Python SDK, as its users write them; of either era."""

import sys

try:
    from mcp.server.mcpserver import Context, Image, MCPServer

    server = MCPServer("interop")
    options = {"host": "127.0.0.1", "port": int(sys.argv[1])}
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP, Image

    server = FastMCP("interop", host="127.0.0.1", port=int(sys.argv[1]))
    options = {}

try:
    from mcp.types import ToolAnnotations
except ImportError:
    from mcp_types import ToolAnnotations


@server.tool(annotations=ToolAnnotations(readOnlyHint=True) if "readOnlyHint" in ToolAnnotations.model_fields else ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def boom() -> str:
    """Always fails."""
    raise ValueError("it went boom")


@server.tool()
def picture():
    """One red pixel."""
    return Image(data=b"\x89PNG", format="png")


@server.tool()
def key(ctx: Context) -> str:
    """The idempotency key of this call, as it came."""
    meta = ctx.request_context.meta
    fields = meta if isinstance(meta, dict) else meta.model_dump()
    return str(fields.get("holdfast.dev/idempotency-key"))


@server.tool()
async def grow(ctx: Context) -> str:
    """Offers one more tool, and says so."""
    server.add_tool(lambda: "new", name="grown", description="Was not here before.")
    notify = getattr(ctx, "notify_tools_changed", None)
    await (notify() if notify else ctx.session.send_tool_list_changed())
    return "grown"


server.run("streamable-http", **options)

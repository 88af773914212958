"""The transport: grpclib inside trio, and one Join stream's fast path. The only room that knows asyncio."""

"""holdfast under pydantic-ai (extra `pydantic-ai`): `steps` keeps what its own step persistence records."""

"""Messages in the formats of providers and frameworks: read, and made of ours."""

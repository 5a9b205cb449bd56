"""The platform as OAuth 2.1 authorization server: programs get tokens that people grant in the browser."""

"""SCIM 2.0 (RFC 7643, RFC 7644): a directory writes people and groups. `apps.directory.api.scim` has the addresses."""

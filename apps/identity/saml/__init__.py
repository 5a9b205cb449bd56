"""Sign-in by SAML 2.0: python3-saml reads the messages, allauth keeps the state and finds the account."""

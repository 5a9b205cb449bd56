"""Sign-in by Feishu, Lark, DingTalk and WeCom, whose logins are OAuth of their own shape and no OpenID Connect."""

"""Endpoints of notifications: inbox, channels and rules."""

from apps.common.api import APIView, Body, Data, PageQuery, Query, Request, operation, paginate_rows
from apps.notices import groups, selectors
from apps.notices.api import serializers
from apps.notices.services import channels, rules
from apps.notices.services.incidents import count_unread, mark_read


class InboxView(APIView):
    @operation("getInbox", scope="account:read", query=serializers.InboxQuery, data=serializers.Inbox)
    def get(self, request: Request, query: Query) -> Data:
        """List the notifications for you, newest first, with the number of unread ones."""
        if query["grouped"]:
            return groups.list_groups(request.user, query)
        rows = selectors.list_items(request.user, unread=query["unread"])
        return {**paginate_rows(rows, query, selectors.serialize_item), "unread": count_unread(request.user)}


class InboxReadView(APIView):
    @operation("readInbox", scope="account:write", body=serializers.InboxReadRequest, data=serializers.InboxUnread)
    def post(self, request: Request, body: Body) -> Data:
        """Mark notifications as read, and return how many are still unread."""
        return {"unread": mark_read(request.user, body.get("ids"))}


class ChannelsView(APIView):
    @operation("listNoticeChannels", scope="notices:read", query=PageQuery, page=serializers.NoticeChannel)
    def get(self, request: Request, query: Query) -> Data:
        """List notification channels: your own, those of your projects, and for administrators the platform's."""
        rows = selectors.list_channels(request.user).filter(name__icontains=query["search"])
        return paginate_rows(rows, query, selectors.serialize_channel)

    @operation(
        "createNoticeChannel",
        scope="notices:write",
        body=serializers.ChannelCreateRequest,
        data=serializers.NoticeChannelCreated,
        status=201,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Create a notification channel. Its address is never returned again."""
        row, secret = channels.create_channel(request.user, **body)
        return {**selectors.serialize_channel(row), "secret": secret}


class ChannelView(APIView):
    @operation(
        "changeNoticeChannel",
        scope="notices:write",
        body=serializers.ChannelChangeRequest,
        partial=True,
        data=serializers.NoticeChannel,
    )
    def patch(self, request: Request, channel_id: str, body: Body) -> Data:
        """Change a channel; one that was suspended after failures is used again."""
        return selectors.serialize_channel(channels.change_channel(request.user, channel_id, body))

    @operation("deleteNoticeChannel", scope="notices:write")
    def delete(self, request: Request, channel_id: str) -> None:
        """Delete a channel with its pending messages."""
        channels.delete_channel(request.user, channel_id)


class ChannelTestView(APIView):
    @operation("testNoticeChannel", scope="notices:write", data=serializers.NoticeDelivery, cost=10)
    def post(self, request: Request, channel_id: str) -> Data:
        """Send one test message now and return whether it was accepted. 429 while too many messages are being sent."""
        return selectors.serialize_delivery(channels.test_channel(request.user, channel_id))


class ChannelDeliveriesView(APIView):
    @operation("listNoticeDeliveries", scope="notices:read", query=PageQuery, page=serializers.NoticeDelivery)
    def get(self, request: Request, channel_id: str, query: Query) -> Data:
        """List the sent and the pending messages of a channel, newest first."""
        return paginate_rows(selectors.list_deliveries(request.user, channel_id), query, selectors.serialize_delivery)


class KindsView(APIView):
    @operation("listNoticeKinds", scope="any", data=serializers.NoticeKinds)
    def get(self, request: Request) -> Data:
        """List the kinds of notifications, with their texts in your language."""
        return {"items": selectors.list_kinds()}


class RulesView(APIView):
    @operation("listNoticeRules", scope="notices:read", query=PageQuery, page=serializers.NoticeRule)
    def get(self, request: Request, query: Query) -> Data:
        """List notification rules: your own, those of your projects, and for administrators the platform's."""
        rows = selectors.list_rules(request.user).filter(name__icontains=query["search"])
        return paginate_rows(rows, query, selectors.serialize_rule)

    @operation(
        "createNoticeRule",
        scope="notices:write",
        body=serializers.RuleCreateRequest,
        data=serializers.NoticeRule,
        status=201,
    )
    def post(self, request: Request, body: Body) -> Data:
        """Create a rule: its channels get every later event that matches it."""
        return selectors.serialize_rule(rules.create_rule(request.user, **body))


class RuleView(APIView):
    @operation(
        "changeNoticeRule",
        scope="notices:write",
        body=serializers.RuleChangeRequest,
        partial=True,
        data=serializers.NoticeRule,
    )
    def patch(self, request: Request, rule_id: str, body: Body) -> Data:
        """Change a rule; the change holds for later events."""
        return selectors.serialize_rule(rules.change_rule(request.user, rule_id, body))

    @operation("deleteNoticeRule", scope="notices:write")
    def delete(self, request: Request, rule_id: str) -> None:
        """Delete a rule. Messages that are pending are still sent."""
        rules.delete_rule(request.user, rule_id)

"""Endpoints of notifications: inbox, channels and rules."""

from apps.common.api import APIView, Body, Data, PageQuery, Query, Request, operation, paginate_rows
from apps.notices import groups, selectors
from apps.notices.api import serializers
from apps.notices.services import channels, inbox, rules


class InboxView(APIView):
    @operation("getInbox", query=serializers.InboxQuery, data=serializers.Inbox)
    def get(self, request: Request, query: Query) -> Data:
        """What concerns you, the newest first, and how much of it you have not read."""
        if query["grouped"]:
            return groups.list_groups(request.user, query)
        rows = selectors.list_items(request.user, unread=query["unread"])
        return {**paginate_rows(rows, query, selectors.serialize_item), "unread": inbox.count_unread(request.user)}


class InboxReadView(APIView):
    @operation("readInbox", body=serializers.InboxReadRequest, data=serializers.InboxUnread)
    def post(self, request: Request, body: Body) -> Data:
        """You have read these. How many are unread then, by themselves."""
        return {"unread": inbox.mark_read(request.user, body.get("ids"))}


class ChannelsView(APIView):
    @operation("listNoticeChannels", query=PageQuery, page=serializers.NoticeChannel)
    def get(self, request: Request, query: Query) -> Data:
        """Yours, those of your projects, and for administrators the platform's."""
        rows = selectors.list_channels(request.user).filter(name__icontains=query["search"])
        return paginate_rows(rows, query, selectors.serialize_channel)

    @operation(
        "createNoticeChannel", body=serializers.ChannelCreateRequest, data=serializers.NoticeChannelCreated, status=201
    )
    def post(self, request: Request, body: Body) -> Data:
        """A new way to hear of things. Its address is never shown again."""
        row, secret = channels.create_channel(request.user, **body)
        return {**selectors.serialize_channel(row), "secret": secret}


class ChannelView(APIView):
    @operation(
        "changeNoticeChannel", body=serializers.ChannelChangeRequest, partial=True, data=serializers.NoticeChannel
    )
    def patch(self, request: Request, channel_id: str, body: Body) -> Data:
        """Changes it, and ends its rest after failures."""
        return selectors.serialize_channel(channels.change_channel(request.user, channel_id, body))

    @operation("deleteNoticeChannel")
    def delete(self, request: Request, channel_id: str) -> None:
        """With all that waits to be sent by it."""
        channels.delete_channel(request.user, channel_id)


class ChannelTestView(APIView):
    @operation("testNoticeChannel", data=serializers.NoticeDelivery)
    def post(self, request: Request, channel_id: str) -> Data:
        """Sends one message now, and says what came of it."""
        return selectors.serialize_delivery(channels.test_channel(request.user, channel_id))


class ChannelDeliveriesView(APIView):
    @operation("listNoticeDeliveries", query=PageQuery, page=serializers.NoticeDelivery)
    def get(self, request: Request, channel_id: str, query: Query) -> Data:
        """What was sent by it, and what waits, the newest first."""
        return paginate_rows(selectors.list_deliveries(request.user, channel_id), query, selectors.serialize_delivery)


class RulesView(APIView):
    @operation("listNoticeRules", query=PageQuery, page=serializers.NoticeRule)
    def get(self, request: Request, query: Query) -> Data:
        """Yours, those of your projects, and for administrators the platform's."""
        rows = selectors.list_rules(request.user).filter(name__icontains=query["search"])
        return paginate_rows(rows, query, selectors.serialize_rule)

    @operation("createNoticeRule", body=serializers.RuleCreateRequest, data=serializers.NoticeRule, status=201)
    def post(self, request: Request, body: Body) -> Data:
        """From now on these channels hear of what happens and is meant here."""
        return selectors.serialize_rule(rules.create_rule(request.user, **body))


class RuleView(APIView):
    @operation("changeNoticeRule", body=serializers.RuleChangeRequest, partial=True, data=serializers.NoticeRule)
    def patch(self, request: Request, rule_id: str, body: Body) -> Data:
        """What happens from now on goes by it."""
        return selectors.serialize_rule(rules.change_rule(request.user, rule_id, body))

    @operation("deleteNoticeRule")
    def delete(self, request: Request, rule_id: str) -> None:
        """What waits to be sent is sent all the same."""
        rules.delete_rule(request.user, rule_id)

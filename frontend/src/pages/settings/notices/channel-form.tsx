import { useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { updateChannel, createChannel, noticeKeys } from "@/api/notices";
import type { Me, NoticeChannel } from "@/api/types";
import { getLanguage, LANGUAGES } from "@/i18n";
import { Callout } from "@/ui/badge";
import { Button } from "@/ui/button";
import { Field } from "@/ui/field";
import { CopyText } from "@/ui/copy-button";
import { FormDialog, TextField } from "@/ui/form-dialog";
import { OwnerField, parseOwner } from "./owner";

const FIELDS = ["name", "kind", "address", "language"] as const;
const KINDS = ["apprise", "webhook"] as const;
type Kind = NoticeChannel["kind"];

/** A new channel, or the settings of one. Its address is never shown. */
export function ChannelForm({ me, channel }: { me: Me; channel?: NoticeChannel }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [owner, setOwner] = useState("me");
  const [kind, setKind] = useState<Kind>(channel?.kind ?? "apprise");
  const save = async ({ name = "", address = "", language: lang, enabled }: Record<string, string>) => {
    const common = { name, language: lang as NoticeChannel["language"], enabled: enabled === "on" };
    let secret = "";
    if (channel) await updateChannel(channel.id, { ...common, ...(address && { address }) });
    else ({ secret } = await createChannel({ ...common, ...parseOwner(owner), kind, address }));
    await client.invalidateQueries({ queryKey: noticeKeys.channels });
    return secret;
  };
  const title = channel ? t("notices.changeOf", { name: channel.name }) : t("notices.addChannel");
  return (
    <FormDialog
      title={title}
      submit={t("notices.save")}
      fields={FIELDS}
      onSubmit={save}
      {...(!channel && { result: (secret: string) => <ChannelCreated secret={secret} /> })}
      trigger={
        <Button size="sm" aria-label={title}>
          {!channel && <Plus />}
          {t(channel ? "notices.change" : "notices.addChannel")}
        </Button>
      }
    >
      {(problem) => (
        <>
          <TextField
            name="name"
            label={t("notices.name")}
            error={problem("name")}
            defaultValue={channel?.name}
            required
          />
          {!channel && (
            <>
              <OwnerField me={me} value={owner} onChange={setOwner} />
              <Field label={t("notices.kind")} error={problem("kind")}>
                {(wiring) => (
                  <select
                    {...wiring}
                    className="control"
                    value={kind}
                    onChange={({ target }) => setKind(target.value as Kind)}
                  >
                    {KINDS.map((each) => (
                      <option key={each} value={each}>
                        {t(`notices.kindOf.${each}`)}
                      </option>
                    ))}
                  </select>
                )}
              </Field>
            </>
          )}
          <Field
            label={t("notices.address")}
            hint={t(channel ? "notices.addressKept" : "notices.addressHint")}
            error={problem("address")}
          >
            {(wiring) => (
              <input
                {...wiring}
                name="address"
                type="password"
                autoComplete="new-password"
                placeholder={kind === "webhook" ? "https://" : "mailto://, slack://, feishu://"}
                className="control"
                required={!channel}
              />
            )}
          </Field>
          <Field label={t("notices.language")} error={problem("language")}>
            {(wiring) => (
              <select {...wiring} name="language" className="control" defaultValue={channel?.language ?? getLanguage()}>
                {LANGUAGES.map(({ code, name }) => (
                  <option key={code} value={code} lang={code}>
                    {name}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <label className="flex items-center gap-2 text-sm">
            <input type="checkbox" name="enabled" defaultChecked={channel?.enabled ?? true} />
            {t("notices.enabled")}
          </label>
        </>
      )}
    </FormDialog>
  );
}

function ChannelCreated({ secret }: { secret: string }) {
  const { t } = useTranslation();
  return (
    <Callout tone="ok" role="status">
      <p className="font-medium">{t(secret ? "notices.secretOnce" : "notices.madeHint")}</p>
      {secret && <CopyText text={secret} className="mt-1" />}
    </Callout>
  );
}

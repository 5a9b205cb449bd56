import { useTranslation } from "react-i18next";
import type { Member } from "@/api/types";

const ROLES: Member["role"][] = ["viewer", "member", "maintainer"];

export function RoleOptions() {
  const { t } = useTranslation();
  return ROLES.map((role) => (
    <option key={role} value={role}>
      {t(`settings.roleOf.${role}`)}
    </option>
  ));
}

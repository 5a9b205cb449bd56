#!/bin/sh
# Does what the official entry point does (docker-library/postgres, docker-entrypoint.sh) with the variables that our
# compose file sets: only the server itself leaves root; whom `initdb` trusts (its own default: everybody on the socket
# and on loopback) and one line for all others; a first server on the Unix socket alone, under which the database is
# made; nothing of this where there is a database. Not here: initdb.d, *_FILE, POSTGRES_INITDB_*, users without a name.
set -eu
[ "${1#-}" = "$1" ] || set -- postgres "$@"
if [ "$1" = postgres ]; then
  mkdir -p "$PGDATA" /var/run/postgresql
  chmod 0700 "$PGDATA" || :
  chmod 3775 /var/run/postgresql || :
  if [ "$(id -u)" = 0 ]; then
    find "$PGDATA" /var/run/postgresql ! -user postgres -exec chown postgres '{}' +
    exec setpriv --reuid postgres --regid postgres --init-groups "$0" "$@"
  fi
fi
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
  user="${POSTGRES_USER:-postgres}" database="${POSTGRES_DB:-${POSTGRES_USER:-postgres}}"
  [ -n "${POSTGRES_PASSWORD:-}" ] || { echo "Error: POSTGRES_PASSWORD must not be empty" >&2; exit 1; }
  passwords=$(mktemp)
  printf '%s\n' "$POSTGRES_PASSWORD" > "$passwords"
  initdb --username "$user" --pwfile "$passwords"
  rm "$passwords"
  shift
  printf '\nhost all all all %s\n' "$(postgres -C password_encryption "$@")" >> "$PGDATA/pg_hba.conf"
  pg_ctl --wait --options "$* -c listen_addresses='' -p ${PGPORT:-5432}" start
  [ "$database" = postgres ] || createdb --username "$user" --maintenance-db postgres "$database"
  pg_ctl --wait --mode fast stop
  set -- postgres "$@"
fi
exec "$@"

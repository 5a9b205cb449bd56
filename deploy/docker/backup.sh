#!/bin/sh
# One file with everything that the platform of docker-compose.yml keeps: its database and its data volume.
#
#   deploy/docker/backup.sh fermi.tar        # while it runs; COMPOSE="docker-compose" for the older program
#
# FERMI_SECRET_KEY is not in it: keep that where you keep secrets.
set -eu
umask 077
COMPOSE="${COMPOSE:-docker compose}"
target="${1:?usage: backup.sh FILE}"
folder=$(mktemp -d "$(dirname "$target")/fermi-backup.XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

# The database first: a file that it names and that training replaced meanwhile is missed by nobody, because an attempt
# goes on from the newest checkpoint that is there.
$COMPOSE exec -T postgresql pg_dump --username fermi --format custom fermi > "$folder/database"
status=0
$COMPOSE exec -T web tar --directory /data --create --file - . > "$folder/data" || status=$?
[ "$status" -le 1 ] || exit "$status" # 1: a file grew while it was read, as logs do
tar --directory "$folder" --create --file "$folder/whole" database data
mv "$folder/whole" "$target"
echo "written: $target ($(wc -c < "$target") bytes)"

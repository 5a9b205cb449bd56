#!/bin/sh
# Puts back what backup.sh wrote, in place of what is there, and starts the platform.
#
#   deploy/docker/restore.sh fermi.tar       # beside docker-compose.yml's settings; the same FERMI_SECRET_KEY
#
# Nothing is touched before the file has been read as a whole.
set -eu
umask 077
COMPOSE="${COMPOSE:-docker compose}"
source="${1:?usage: restore.sh FILE}"
folder=$(mktemp -d "$(dirname "$source")/fermi-restore.XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

tar --directory "$folder" --extract --file "$source" database data
tar --list --file "$folder/data" > /dev/null
# By the database's own image, in a container that serves nothing else: there may be no database here yet.
$COMPOSE run --rm --no-deps -T postgresql pg_restore --file /dev/null < "$folder/database"

$COMPOSE stop web worker beat watcher
$COMPOSE up --detach postgresql redis
tries=0
until $COMPOSE exec -T postgresql pg_isready --quiet --host 127.0.0.1 --username fermi; do
  tries=$((tries + 1))
  [ "$tries" -lt 60 ] || { echo "PostgreSQL does not answer: $COMPOSE logs postgresql" >&2; exit 1; }
  sleep 1
done
$COMPOSE exec -T postgresql dropdb --username fermi --maintenance-db template1 --if-exists --force fermi
$COMPOSE exec -T postgresql createdb --username fermi --maintenance-db template1 fermi
$COMPOSE exec -T postgresql pg_restore --username fermi --dbname fermi --exit-on-error < "$folder/database"
$COMPOSE run --rm --no-deps -T web sh -c 'find /data -mindepth 1 -delete && tar --directory /data --extract --file -' < "$folder/data"
$COMPOSE up --detach
echo "restored: $source"

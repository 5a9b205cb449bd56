#!/bin/sh
# Does what the official entry point does (redis/docker-library-redis, docker-entrypoint.sh): only the server leaves
# root, and its files are its own. Protected mode is off, or no other container could connect: there it is compiled in
# so (their Dockerfile changes the default in redis' config.c), here it is an option.
set -e
if [ "${1#-}" != "$1" ] || [ "${1%.conf}" != "$1" ]; then
  set -- redis-server "$@"
fi
if [ "$1" = redis-server ] && [ "$(id -u)" = 0 ]; then
  find . ! -user redis -exec chown redis '{}' +
  exec setpriv --reuid redis --regid redis --init-groups "$0" "$@"
fi
[ "$(umask)" != 0022 ] || umask 0077
[ "$1" != redis-server ] || set -- "$@" --protected-mode no
exec "$@"

# shellcheck shell=bash disable=SC2034
# tcp.sh - sourced by the NVMe/TCP checks, beside check.sh: servers and hosts of one guest.
#
# Expects $here, $unvme and $tools, paths without blanks. Programs of $tools come before those of the host.
export UNVME_HOME=/tmp/unvme UNVME_LOG=warn
PATH=$tools:$PATH
HOSTNQN=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555
HOSTID=11111111-2222-3333-4444-555555555555
OTHER_HOST=nqn.2014-08.org.nvmexpress:uuid:99999999-2222-3333-4444-555555555555
NQN=nqn.2024-01.io.example:ssd
ADDRESS=127.0.0.1
PORT=4420
HOST_KEY=DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:
CONTROLLER_KEY=DHHC-1:00:gIGCg4SFhoeIiYqLjI2Oj5CRkpOUlZaXmJmam5ydnp9vmVbU:
TLS_KEY=NVMeTLSkey-1:01:AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH:

# This guest's name, for the kernel's tools and for ours.
name_host() {
  mkdir -p /etc/nvme /run/nvme "$UNVME_HOME"
  echo "${1:-$HOSTNQN}" > /etc/nvme/hostnqn
  echo $HOSTID > /etc/nvme/hostid
}

# listens PORT
listens() { (: > "/dev/tcp/$ADDRESS/$1") 2> /dev/null; }

# serve NAME PORT OPTION... DEVICE: a server of ours, known by NAME; what it warns of is in /tmp/NAME.log.
serve() {
  local name=$1 port=$2; shift 2
  $unvme serve --tcp "$ADDRESS:$port" "$@" > "/tmp/$name.out" 2>> "/tmp/$name.log" &
  echo $! > "/tmp/$name.pid"
  until_so 20 listens "$port" || { cat "/tmp/$name.out" "/tmp/$name.log"; return 1; }
}

# stop NAME [SIGNAL]: and waits until it is gone.
stop() {
  local pid; pid=$(cat "/tmp/$1.pid")
  kill "${2:--TERM}" "$pid"
  until_so 10 ended "$pid"
}
ended() { case $(cut -d ' ' -f 3 "/proc/$1/stat" 2> /dev/null || echo Z) in Z | X) ;; *) return 1 ;; esac; }

no_warnings() { [ ! -s "/tmp/$1.log" ] || { cat "/tmp/$1.log"; return 1; }; }

# connect OPTION...: this host to the subsystem $NQN at $PORT, unless the options say otherwise; its name is
# then $controller.
connect() {
  local before after
  before=$(controllers)
  nvme connect -t tcp -a $ADDRESS -s "${AT:-$PORT}" -n "${TO:-$NQN}" -q $HOSTNQN -I $HOSTID --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=60 "$@"
  after=$(controllers)
  controller=$(comm -13 <(echo "$before") <(echo "$after") | head -1)
  [ -n "$controller" ]
}
controllers() { find /sys/class/nvme -mindepth 1 -name 'nvme*' -printf '%f\n' | sort; }

# connect_block OPTION...: and waits for a namespace; its path is then $block.
connect_block() {
  connect "$@"
  block=/dev/${controller}n1
  until_so 10 test -b "$block"
}

disconnect() { nvme disconnect -n "${1:-$NQN}"; }

# verified FILE OPTION...: fio writes and compares.
verified() {
  local file=$1; shift
  timeout 900 fio --name=verified --filename="$file" --direct=1 --verify=crc32c --verify_fatal=1 --verify_state_save=0 \
    --ioengine=libaio --output-format=terse --terse-version=3 "$@"
}

# checked NAME COMMAND...: check, and when that fails what it has left behind goes, for those that follow.
checked() {
  local before=$failed pid
  failed=0
  check "$@"
  if [ "$failed" = 1 ]; then
    umount -q /tmp/mount
    nvme disconnect-all > /dev/null 2>&1
    for pid in /tmp/*.pid; do
      case $pid in /tmp/ssd.pid) ;; *) kill -9 "$(cat "$pid")" 2> /dev/null; rm -f "$pid" ;; esac
    done
    listens $PORT || serve ssd $PORT --nqn $NQN "$SLOT" > /dev/null 2>&1
  fi
  [ "$before" = 0 ] || failed=1
}

# The daemon that shakes hands for the kernel, and the derived key of TLS_KEY for this host in the kernel's
# keyring.
tls_ready() {
  modprobe -a tls nvme-keyring
  printf '[debug]\nloglevel=1\n[authenticate]\nkeyrings=.nvme\n[authenticate.client]\n[authenticate.server]\n' > /tmp/tlshd.conf
  tlshd -s -c /tmp/tlshd.conf > /tmp/tlshd.log 2>&1 &
  echo $! > /tmp/tlshd.pid
  python3 "$here/tls_psk.py" $TLS_KEY $HOSTNQN "${1:-$NQN}" "${2:-1}" > /tmp/tls-keys
  nvme tls-key --import -f /tmp/tls-keys
}

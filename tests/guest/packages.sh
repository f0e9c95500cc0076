# shellcheck shell=bash
# packages.sh - Debian packages unpacked under a folder of ours: no root, nothing installed, any Debian or
# Ubuntu host. Sourced by guest.sh; expects $GUEST_CACHE, die() and, for what a host cannot help,
# unavailable().
#
# The archive is trixie with trixie-backports, whatever the host runs: the unpacked programs bring their own
# libc.

# Where the archive is; by default where this host's own packages come from.
DEBIAN_MIRROR=${DEBIAN_MIRROR:-}
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
FETCH_SECONDS=600                                       # limit of each apt run

# Address of the Debian archive among the sources of this host's apt.
host_mirror() {
  # shellcheck disable=SC2016  # apt expands that, not the shell
  apt-get indextargets --format '$(REPO_URI)' 2> /dev/null | sed 's,/*$,,' | grep -m 1 '/debian$'
}

# Makes the private apt configuration once and refreshes its lists when they are older than a day.
archive_ready() {
  local a=$GUEST_CACHE/apt
  [ -n "$DEBIAN_MIRROR" ] || DEBIAN_MIRROR=$(host_mirror)
  [ -n "$DEBIAN_MIRROR" ] || unavailable "this host's packages come from no Debian archive; name one in DEBIAN_MIRROR"
  [ -s "$KEYRING" ] || unavailable "no $KEYRING (install debian-archive-keyring)"
  mkdir -p "$a"/{lists/partial,cache/archives/partial,state} || die "cannot make $a"
  : > "$a/status"
  printf 'deb [signed-by=%s] %s %s main\n' "$KEYRING" "$DEBIAN_MIRROR" trixie \
    "$KEYRING" "$DEBIAN_MIRROR" trixie-backports > "$a/sources.list"
  cat > "$a/apt.conf" <<CONF
Dir::State "$a/state";
Dir::State::lists "$a/lists";
Dir::State::status "$a/status";
Dir::Cache "$a/cache";
Dir::Etc::sourcelist "$a/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
CONF
  [ -n "$(find "$a/stamp" -mtime -1 2> /dev/null)" ] && return
  apt_private apt-get -q update >&2 || unavailable "cannot read the package lists of $DEBIAN_MIRROR"
  touch "$a/stamp"
}

apt_private() { APT_CONFIG=$GUEST_CACHE/apt/apt.conf timeout -k 5 "$FETCH_SECONDS" "$@"; }

# unpack DIR PACKAGE[=VERSION]...: downloads exactly these packages and unpacks them into DIR.
unpack() {
  local dir=$1 debs d; shift
  mkdir -p "$dir" || die "cannot make $dir"
  debs=$(mktemp -d "$GUEST_CACHE/debs.XXXXXX") || die "mktemp"
  (cd "$debs" && apt_private apt-get -q download "$@") >&2 || { rm -rf "$debs"; unavailable "cannot download $*"; }
  for d in "$debs"/*.deb; do dpkg -x "$d" "$dir" || die "cannot unpack $d"; done
  rm -rf "$debs"
}

# closure PACKAGE...: the packages from trixie-backports and everything they need, libc included, as
# NAME=VERSION lines.
closure() {
  apt_private apt-get -s install -t trixie-backports "$@" |
    sed -n 's/^Inst \([^ ]*\) \(\[[^]]*\] \)\{0,1\}(\([^ ]*\) .*/\1=\3/p'
}

# private_qemu: prints the path of a wrapper that runs QEMU from trixie-backports, unpacked at its first use.
private_qemu() {
  local tree=$GUEST_CACHE/qemu lib packages
  if ! [ -x "$tree/run" ]; then
    archive_ready
    mapfile -t packages < <(closure qemu-system-x86)
    [ ${#packages[@]} -gt 10 ] || die "apt cannot resolve qemu-system-x86"
    rm -rf "$tree"; unpack "$tree" "${packages[@]}"
    lib=usr/lib/x86_64-linux-gnu
    # The tree has its own loader and libc; modules of another QEMU version, if the host has one, abort it.
    cat > "$tree/run.new" <<WRAPPER
#!/bin/sh
R=\$(dirname "\$(readlink -f "\$0")")
export QEMU_MODULE_DIR="\$R/$lib/qemu"
exec "\$R/$lib/ld-linux-x86-64.so.2" --library-path "\$R/$lib" "\$R/usr/bin/qemu-system-x86_64" \\
  -L "\$R/usr/share/qemu" -L "\$R/usr/share/seabios" -L "\$R/usr/lib/ipxe/qemu" "\$@"
WRAPPER
    chmod +x "$tree/run.new" && mv "$tree/run.new" "$tree/run"
  fi
  echo "$tree/run"
}

# What NVMe/TCP is tested with: this nvme-cli knows TLS and authentication, tlshd shakes hands for the guest's
# kernel.
TOOL_PACKAGES="nvme-cli ktls-utils mdadm lvm2 keyutils"
TOOLS="nvme tlshd mdadm lvm keyctl"
# In their closure, and of no use in a tree of its own.
NOT_TOOLS='^(systemd|udev|passwd|adduser|login.defs|base-passwd|debconf|mount|uuid-runtime|init-system-helpers|libpam-|gcc-14-base)'

# private_tools: prints the path of a folder with programs of trixie, unpacked at its first use. The guest
# runs them.
private_tools() {
  local tree=$GUEST_CACHE/tools lib=usr/lib/x86_64-linux-gnu packages tool
  if ! [ -x "$tree/bin/nvme" ]; then
    archive_ready
    # shellcheck disable=SC2086
    mapfile -t packages < <(closure $TOOL_PACKAGES | grep -vE "$NOT_TOOLS")
    [ ${#packages[@]} -gt 10 ] || die "apt cannot resolve $TOOL_PACKAGES"
    rm -rf "$tree"; unpack "$tree" "${packages[@]}"
    mkdir "$tree/bin.new"
    for tool in $TOOLS; do
      # shellcheck disable=SC2016  # expanded where it runs
      printf '%s\n' '#!/bin/sh' 'R=$(dirname "$(dirname "$(readlink -f "$0")")")' \
        "p=\$(PATH=\$R/usr/sbin:\$R/usr/bin:\$R/sbin:\$R/bin command -v $tool)" \
        "exec \"\$R/$lib/ld-linux-x86-64.so.2\" --library-path \"\$R/$lib\" \"\$p\" \"\$@\"" > "$tree/bin.new/$tool"
      chmod +x "$tree/bin.new/$tool"
    done
    mv "$tree/bin.new" "$tree/bin"
  fi
  echo "$tree/bin"
}

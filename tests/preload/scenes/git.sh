# git: many small files, renames, locks, mappings of packs, fork and exec.
# shellcheck shell=bash disable=SC1091,SC2012,SC2035,SC2002,SC2018,SC2019,SC2094,SC1014,SC2320,SC2319
set -u
export GIT_CONFIG_NOSYSTEM=1 HOME="$PWD/home" GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=c \
    GIT_COMMITTER_EMAIL=c@example.org GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' LC_ALL=C
mkdir home && git config --global init.defaultBranch trunk && git config --global gc.auto 0 && git config --global advice.detachedHead false
git init -q repo && cd repo || exit 1
cp -r "$SOURCE/docs" "$SOURCE/Makefile" . && git add -A && git commit -qm first && git rev-parse HEAD
echo changed >>Makefile && git status --porcelain && git diff --stat && git stash -q && git status --porcelain && git stash pop -q
git commit -qam second && git mv docs papers && git commit -qm moved && git log --oneline --stat | tail -n 3
git checkout -qb side HEAD~1 && echo side >side && git add side && git commit -qm side && git checkout -q trunk && git merge -q --no-edit side && git rev-parse HEAD
git tag -a one -m one && git branch -d side && git gc -q --prune=now && git fsck --strict && git count-objects -v | grep -E '^(count|packs|garbage)'
git repack -adfq && git verify-pack -v .git/objects/pack/*.idx | tail -n 1 | sed 's/pack-.*pack/pack/' && git log -p | cksum
for i in 1 2 3 4 5 6 7 8 9 10; do echo "$i" >"file$i" && git add "file$i" && git commit -qm "$i" || exit 1; done
git rev-parse HEAD && git bisect start -q HEAD HEAD~5 >/dev/null && git bisect reset >/dev/null 2>&1 && git rebase -q --onto HEAD~5 HEAD~3 && git reset -q --hard one && git status --porcelain
cd .. && git clone -q repo cloned && git clone -q --no-hardlinks "file://$PWD/repo" copied && git -C copied fsck --strict && git -C cloned rev-parse HEAD
echo pulled >repo/pulled && git -C repo add -A && git -C repo commit -qm pulled && git -C cloned pull -q && cat cloned/pulled
git -C copied worktree add -q ../tree HEAD~1 && ls tree && git -C copied worktree list | wc -l
git -C repo archive HEAD | tar -tf - | wc -l
git clone -q --bare repo bare.git && git -C cloned remote set-url origin ../bare.git && echo push >cloned/push && git -C cloned add -A && git -C cloned commit -qm push && git -C cloned push -q && git -C bare.git log -1 --format=%s
git -C repo config core.fsyncMethod batch && git -C repo grep -c unvme papers | sort | head -n 3
git -C repo rm -rq papers && git -C repo commit -qm gone && ls repo

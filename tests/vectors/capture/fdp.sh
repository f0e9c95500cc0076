#!/bin/bash
# In the guest: flexible data placement. One namespace with eight reclaim unit handles.
# shellcheck source-path=SCRIPTDIR source=checkpoint.sh
. ./checkpoint.sh
C=/dev/nvme0
modprobe nvme
A=$(node 1)
sleep 1
ask skip
get_log() { response "log-$1-fdp.bin" nvme admin-passthru $C -o 2 -n 0 --cdw10="$2" --cdw11="$3" -l "$4" -r -b; }
response identify-cns01-fdp.bin nvme admin-passthru $C -o 6 --cdw10=1 -l 4096 -r -b
response identify-cns00-nsid1-fdp.bin nvme admin-passthru $C -o 6 --cdw10=0 -n 1 -l 4096 -r -b
ask skip
vector fdp-write-handle-0 1 0x01 0  - nvme write "$A" -s 0 -c 7 -z 4096 --dir-type=2 --dir-spec=0 -d pattern
vector fdp-write-handle-3 1 0x01 8  - nvme write "$A" -s 8 -c 7 -z 4096 --dir-type=2 --dir-spec=3 -d pattern
vector fdp-write-handle-7 1 0x01 16 - nvme write "$A" -s 16 -c 7 -z 4096 --dir-type=2 --dir-spec=7 -d pattern
vector fdp-ruh-status     1 0x12 -  - nvme fdp status "$A"
vector fdp-ruh-update     1 0x1d -  - nvme fdp update "$A" -p 3
vector fdp-configs        0 0x02 -  - nvme fdp configs $C -e 1
vector fdp-usage          0 0x02 -  - nvme fdp usage $C -e 1
vector fdp-stats          0 0x02 -  - nvme fdp stats $C -e 1
get_log 20 0x007f0020 0x00010000 512
get_log 21 0x00ff0021 0x00010000 1024
get_log 22 0x000f0022 0x00010000 64
get_log 23 0x00ff0123 0x00010000 1024
response ruh-status-fdp.bin nvme io-passthru "$A" -o 0x12 -n 1 --cdw10=1 --cdw11=0x7f -l 512 -r -b

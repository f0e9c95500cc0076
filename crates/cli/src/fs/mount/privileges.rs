//! Set-id bits and capabilities of a file whose content changes, where kernels leave them to the file system.

use fuser::Request;
use unvme_fs::{Credentials, Result, Vnode};

/// Removes what a change of the content takes away, before FALLOCATE and COPY_FILE_RANGE change it. A kernel
/// from 6.0 on has done so (`file_modified`), as every kernel does before WRITE and SETATTR; then nothing is
/// left to remove. The caller's groups are not known: a set-group-ID bit that depends on them stays.
pub(super) fn drop_privileges(req: &Request, node: &Vnode) -> Result<()> {
    if !node.may_grant_privileges() {
        return Ok(());
    }
    let gid = node.attributes().gid;
    node.drop_privileges(&Credentials { uid: req.uid(), gid, ..Credentials::default() })
}

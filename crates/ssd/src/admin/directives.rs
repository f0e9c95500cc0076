//! Directive Send and Directive Receive (Base 5.1.6, 5.1.7, 8.1.8).
//!
//! The only directive there is beside Identify is Data Placement, which has no operations of its own. It is
//! enabled for every namespace that is created while FDP is, since hosts name placement identifiers without
//! asking for it first; one that does not want them to mean anything disables it.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use unvme_spec::admin::{DirectiveReceive, DirectiveSend};
use unvme_spec::directive::{DirectiveSet, EnableDirective, IdentifyParameters, dtype, identify_operation};
use unvme_spec::{Nsid, Sqe, Status};
use zerocopy::IntoBytes;

use crate::Ssd;
use crate::queue::SubmissionQueue;
use crate::reply::Reply;

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_do_not_retry();

impl Ssd {
    pub(super) fn directive_receive(
        &self,
        sq: &mut SubmissionQueue,
        sqe: &Sqe,
        receive: DirectiveReceive,
    ) -> Result<Reply, Status> {
        self.check_directives()?;
        if (receive.dtype, receive.operation) != (dtype::IDENTIFY, identify_operation::RETURN_PARAMETERS) {
            return Err(INVALID_FIELD);
        }
        let table = self.namespaces.get();
        let is_enabled = match receive.nsid {
            Nsid::ALL => {
                let mut active = table.iter().filter(|namespace| table.is_active(namespace)).peekable();
                active.peek().is_some() && active.all(|namespace| namespace.handles.is_directive_enabled())
            }
            nsid => table.active(nsid.0)?.handles.is_directive_enabled(),
        };
        let enabled: &[u8] =
            if is_enabled { &[dtype::IDENTIFY, dtype::DATA_PLACEMENT] } else { &[dtype::IDENTIFY] };
        let mut parameters = IdentifyParameters::default();
        parameters.supported = DirectiveSet::of(&[dtype::IDENTIFY, dtype::DATA_PLACEMENT]);
        parameters.enabled = DirectiveSet::of(enabled);
        parameters.persistent = DirectiveSet::of(&[dtype::DATA_PLACEMENT]);
        self.send(sq, sqe, parameters.as_bytes(), usize::try_from(receive.bytes()).unwrap_or(usize::MAX))
    }

    pub(super) fn directive_send(&self, send: DirectiveSend) -> Result<u64, Status> {
        self.check_directives()?;
        let target = EnableDirective::from_bits(send.cdw12);
        if (send.dtype, send.operation) != (dtype::IDENTIFY, identify_operation::ENABLE_DIRECTIVE)
            || target.target() != dtype::DATA_PLACEMENT
        {
            return Err(INVALID_FIELD);
        }
        // FFFFFFFFh is refused with Invalid Namespace or Format, as Base 8.1.8.4 has it.
        let table = self.namespaces.get();
        let namespace = table.active(send.nsid.0)?;
        if self.fdp.enabled().is_none() {
            return Err(Status::FDP_DISABLED.with_do_not_retry());
        }
        namespace.handles.enable_directive(target.enable());
        self.subsystem.saving.changed();
        self.subsystem.save_state()?;
        Ok(0)
    }

    fn check_directives(&self) -> Result<(), Status> {
        match self.fdp.has_flash() {
            true => Ok(()),
            false => Err(Status::INVALID_OPCODE.with_do_not_retry()),
        }
    }
}

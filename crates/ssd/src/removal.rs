//! The end of a device: unplugged while hosts still have it, cut off from power, or closed with its last
//! controller.
//!
//! A device that is gone gives its media back when nobody is at work on it any more, though hosts may keep
//! their handles for as long as they like: another process can then open it. From that moment on nothing of
//! this one writes to the media, which is what the steps of [`Ssd::close_device`] are about. The media's
//! memory stays mapped until the last handle is dropped.

use std::sync::atomic::Ordering;

use unvme_bus::lock;

use crate::Ssd;

impl Ssd {
    /// Unplugs the device: from now on all its controllers are gone. Their registers read as all ones, and no
    /// command is answered any more, not even those that are being executed. What has been written is in the
    /// media and everything that is saved has been saved when this returns, as after a surprise removal of a
    /// drive whose capacitors last; and the store has been closed ([`crate::Store::close`]), so that the
    /// media can be opened anew.
    ///
    /// Not to be called from within the store, nor with anything of the device locked: it waits for the
    /// commands that are being executed.
    pub fn unplug(&self) {
        tracing::warn!(serial = self.config.serial, "the device is unplugged");
        self.vanish();
        self.close_device();
    }

    /// A host asks for the device to be unplugged: when its command has been answered, and nothing is locked.
    pub(crate) fn unplug_soon(&self) {
        self.wants_unplug.store(true, Ordering::Relaxed);
        self.stop_serving();
    }

    /// The controller is at work on nothing, since it has been stopped: if that was because the device goes,
    /// that is seen to.
    #[cold]
    pub(crate) fn see_to_removal(&self) {
        if self.wants_unplug.load(Ordering::Relaxed) {
            if !self.faults.is_gone() {
                self.unplug();
            }
        } else if self.faults.is_gone() {
            self.close_device();
        }
    }

    /// Saves everything, unless there is no power to, and gives the media back. Does nothing the second time,
    /// but wait for the first. The caller has nothing locked; either the device is gone, or this is its last
    /// controller and that has no queues.
    pub(crate) fn close_device(&self) {
        let mut is_closed = lock(&self.subsystem.is_closed);
        if std::mem::replace(&mut *is_closed, true) {
            return;
        }
        // A controller that is being added is there; no other one will be. Not held below: an admin command
        // may wait for it.
        drop(lock(&self.subsystem.changing));
        for controller in self.subsystem.controllers() {
            // A reset that is under way ends; later ones see that the device is gone.
            let _registers = lock(&controller.registers);
            controller.remove_queues();
        }
        // Whoever looks after FDP, which writes to the flash, has done so, and sees the next time that the
        // device is gone.
        let _attending = self.fdp.attending();
        if self.is_powered() {
            self.shut_down();
        }
        self.subsystem.saving.close();
        self.subsystem.namespaces.get().stores().for_each(|pairs| pairs.store.abandon());
        self.media.store().close();
    }
}

internal import EarshotLoop

/// Folders of a private bus: this one in a folder for temporary files, and one in the user's cache for the spool, from
/// where partial bodies can be renamed into the folder that keeps them.
extension RuntimeFolder {
    /// Creates the spool of a private bus.
    ///
    /// - Parameter parts: folder of partial bodies; nil for none.
    /// - Returns: path of the spool, in the runtime folder if the cache has no usable place for it.
    package func makePrivateSpool(besideParts parts: String?) -> String {
        guard let parts else { return ownSpool }
        let spool = "\(privateFolder(besideParts: parts))/spool"
        do throws(FolderError) {
            // Nothing is created in a folder where others can replace it.
            try PrivateFolder.checkFoldersAbove(spool)
            try PrivateFolder.makeStore(spool)
            return spool
        } catch { return ownSpool }
    }

    /// Removes both folders of a private bus, as far as they exist.
    package func removePrivate(besideParts parts: String?) {
        PrivateFolder.remove(path)
        if let parts { PrivateFolder.remove(privateFolder(besideParts: parts)) }
    }

    /// Returns the folder of the spool's folder: its name has the random part of this folder's name.
    func privateFolder(besideParts parts: String) -> String {
        let name = path.split(separator: "/").last ?? ""
        return Folder.beside(parts, "private-\(name.hasPrefix("earshot-") ? name.dropFirst(8) : name)")
    }
}

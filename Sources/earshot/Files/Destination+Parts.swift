internal import EarshotLoop
internal import Glibc

/// Files that hold a part of a body, which a later run continues.
extension Destination {
    /// Appends the rest of a body to its partial file.
    ///
    /// - Parameter modified: time of the file, in seconds since 1970; nil for the present.
    /// - Returns: path of the file; nil if the complete body has another hash than expected, and the file stays.
    mutating func append(
        _ body: OutputBody, to partial: ExistingFile, of item: OutputItem, modified: Int64?
    ) throws(OutputFailure) -> String? {
        let source = try BodySource(body)
        let descriptor = try openPartialFile(partial, of: item)
        defer { close(descriptor) }
        if let digest = partial.digest, source.combinedDigest(after: descriptor, length: partial.length) != digest {
            return nil
        }
        try appendToPartialFile(partial, descriptor) { output throws(OutputFailure) in
            try source.write(to: output, partial.path)
        }
        if let modified { FileTime.setModificationTime(ofDescriptor: descriptor, seconds: modified) }
        return partial.path
    }

    /// Keeps the bytes of a body that did not end, if a later run can continue them.
    ///
    /// - Parameter start: start of the run in seconds since 1970, the time of a new file. A later change of the body at
    ///   the server then makes the file outdated.
    /// - Returns: whether they are kept.
    mutating func keepPartialBody(
        _ body: ArrivingBody, of item: OutputItem, since start: Int64
    ) throws(OutputFailure) -> Bool {
        guard body.receivedBytes > 0 else { return false }
        if let partial = item.partial, body.status == 206 {
            guard partial.resumptionResult(of: 206, body.fields, received: nil) == .body else { return false }
            let descriptor = try openPartialFile(partial, of: item)
            defer { close(descriptor) }
            try appendToPartialFile(partial, descriptor) { output throws(OutputFailure) in
                try OutputFailure.throwIfFailed(
                    output.copy(from: body.descriptor, length: body.receivedBytes), partial.path)
            }
            PartialBodyRecord.setRecord(partial.bodyRecord?.adding(bytes: body.receivedBytes), of: descriptor)
            FileTime.setModificationTime(ofDescriptor: descriptor, seconds: partial.modified)
            return true
        }
        guard body.status == 200,
            let record = PartialBodyRecord(body.fields, length: body.receivedBytes, total: body.totalBytes),
            item.partial.map({ record.canReplace($0.bodyRecord) }) ?? true, let (file, path) = try newFile(for: item)
        else { return false }
        try OutputFailure.throwIfFailed(file.output.copy(from: body.descriptor, length: body.receivedBytes), path)
        file.setTime(start)
        file.setRecord(record)
        try file.commit()
        return true
    }

    private mutating func newFile(for item: OutputItem) throws(OutputFailure) -> (NewFile, path: String)? {
        switch outputTarget {
        case .nowhere, .standardOutput: return nil
        case .file(let path):
            guard let target = Self.replacedPath(path) else { return nil }
            return (try NewFile(for: target), path)
        case .folder(let folder, let opened):
            guard let relative = item.name else { return nil }
            let path = "\(folder)/\(relative)"
            let (parent, name) = try openFolder(of: relative, below: opened, path)
            return (try NewFile(in: parent, named: name, at: path), path)
        }
    }

    /// Opens a partial file at its end.
    private mutating func openPartialFile(_ partial: ExistingFile, of item: OutputItem) throws(OutputFailure) -> Int32 {
        let descriptor: Int32
        if case .folder(_, let opened) = outputTarget, let relative = item.name {
            let (parent, name) = try openFolder(of: relative, below: opened, partial.path)
            descriptor = try OutputEntry(name, in: parent, at: partial.path).open(O_RDWR)
        } else {
            let file = Self.replacedPath(partial.path) ?? partial.path
            descriptor = try OutputEntry(file, given: partial.path).open(O_RDWR)
        }
        guard descriptor >= 0 else { throw OutputFailure.systemFailure("open", partial.path) }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG,
            Int(status.st_size) == partial.length, lseek(descriptor, off_t(partial.length), SEEK_SET) >= 0
        else {
            close(descriptor)
            throw .cannotWrite("cannot continue \(partial.path): another program changed it; retry")
        }
        return descriptor
    }

    /// Writes behind the bytes of a partial file. After a failure the file is as it was.
    private func appendToPartialFile(
        _ partial: ExistingFile, _ descriptor: Int32, _ write: (Output) throws(OutputFailure) -> Void
    ) throws(OutputFailure) {
        do throws(OutputFailure) {
            try write(Output(file: descriptor))
        } catch {
            ftruncate(descriptor, off_t(partial.length))
            FileTime.setModificationTime(ofDescriptor: descriptor, seconds: partial.modified)
            throw error
        }
    }
}

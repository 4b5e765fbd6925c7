internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Destination of the bodies of `get` and `watch`: a folder, one file, standard output, or none.
struct Destination {
    enum Target {
        /// Bodies are discarded.
        case nowhere
        /// Standard output, and whether it is a terminal to which no binary body may go.
        case standardOutput(isGuarded: Bool)
        /// A single file.
        case file(String)
        case folder(String, OpenFolder)
    }

    let outputTarget: Target
    private var outputNames = OutputNames()
    /// Directory below the output directory that the last file went to.
    private var lastFolder: (path: String, folder: OpenFolder)?
    /// Descriptor that aborts a blocked write when it is readable.
    private let interruptDescriptor: Int32
    /// Number of replaced files in the directory.
    private(set) var replacedFileCount = 0
    /// Mover of spool files to the destination; nil where files are copied.
    private let mover: FileMover?

    static func nowhere() -> Destination { Destination(target: .nowhere, interrupt: -1) }

    /// Standard output.
    ///
    /// - Parameter permitsBinary: whether a binary body may go to a terminal.
    static func standardOutput(interrupt: Int32, permitsBinary: Bool = true) -> Destination {
        let isGuarded = !permitsBinary && isatty(STDOUT_FILENO) == 1
        return Destination(target: .standardOutput(isGuarded: isGuarded), interrupt: interrupt)
    }

    static func file(_ path: String, interrupt: Int32) -> Destination {
        let mover = replacedPath(path).flatMap { FileMover(into: parentPath(of: $0)) }
        return Destination(target: .file(path), interrupt: interrupt, mover: mover)
    }

    /// Opens a directory, and creates it if it is missing.
    ///
    /// - Throws: `CommandError` if it can be neither opened nor created.
    static func folder(
        _ path: String, names: OutputNames = OutputNames(), interrupt: Int32
    ) throws(CommandError) -> Destination {
        do throws(OutputFailure) {
            let target = Target.folder(path, try OutputEntry.folder(path, given: path, creates: true))
            return Destination(target: target, interrupt: interrupt, mover: FileMover(into: path), names: names)
        } catch {
            throw error.commandError("give another -d DIR")
        }
    }

    private init(target: Target, interrupt: Int32, mover: FileMover? = nil, names: OutputNames = OutputNames()) {
        self.outputTarget = target
        self.outputNames = names
        self.interruptDescriptor = interrupt
        self.mover = mover
    }

    /// Whether exclusively owned files of this spool can be moved to the destination.
    func canMoveFiles(from spool: String?) -> Bool { spool.map { mover?.sharesFileSystem(with: $0) == true } ?? false }

    /// Directory that receives the bodies as files; nil without one.
    var bodyFolder: String? {
        switch outputTarget {
        case .nowhere, .standardOutput: nil
        case .file(let path): Self.replacedPath(path).map { Destination.parentPath(of: $0) }
        case .folder(let path, _): path
        }
    }

    /// Path of the single file, as given; nil without one.
    var onlyFile: String? { if case .file(let path) = outputTarget { path } else { nil } }

    /// Whether bodies go to a terminal.
    var isTerminal: Bool { if case .standardOutput = outputTarget { isatty(STDOUT_FILENO) == 1 } else { false } }

    /// Whether each body becomes a file of a directory.
    var isFolder: Bool { if case .folder = outputTarget { true } else { false } }

    /// Returns a writer that streams the single body. Nil if bodies are discarded, have their own files, or the
    /// destination is a device.
    func stream() -> StreamedBody? {
        switch outputTarget {
        case .standardOutput(let isGuarded):
            return StreamedBody(Output(STDOUT_FILENO, interruptDescriptor: interruptDescriptor), isGuarded: isGuarded)
        case .file(let path): return Self.replacedPath(path).map { StreamedBody(newFileFor: $0) }
        case .nowhere, .folder: return nil
        }
    }

    /// Writes the body of `url`. A regular file is written completely or not at all.
    ///
    /// - Returns: path of the file; nil without one.
    mutating func write(_ body: OutputBody, of url: String) throws(OutputFailure) -> String? {
        try write(body, of: OutputItem(entry: ListEntry(url: url), index: 1))
    }

    /// Writes the body of `url` to a new file of the directory, which survives a power cut.
    ///
    /// A body that is delivered again finds its file. Another file of the same name belongs to another body.
    ///
    /// - Parameter sha256: hash of the body, as hexadecimal digits.
    /// - Returns: path of the file; nil without a directory.
    mutating func keepBody(_ body: OutputBody, of url: String, sha256: String?) throws(OutputFailure) -> String? {
        guard case .folder(let folder, let opened) = outputTarget else { return try write(body, of: url) }
        while true {
            // Opened first, so that a missing source uses up no name.
            let source = try BodySource(body)
            let name = outputNames.path(ListEntry(url: url), index: 1, nil)
            let path = "\(folder)/\(name)"
            if opened.containsFile(named: ByteText.cString(name)) {
                let isUsable = (try? OutputEntry(name, in: opened, at: path).fileStatus()) != nil
                guard isUsable, let sha256, opened.sha256(of: name, length: source.length) == sha256 else { continue }
                return path
            }
            let file = try NewFile(in: opened, named: name, at: path)
            try source.write(to: file.output, path)
            try file.flush()
            guard try file.commitWithoutReplacing() else { continue }
            try file.flushName()
            return path
        }
    }

    /// Writes the body of an item of a list.
    ///
    /// - Parameters:
    ///   - response: response with the body, which may determine the name.
    ///   - modified: time of the file, in seconds since 1970; nil for the present.
    mutating func write(
        _ body: OutputBody, of item: OutputItem, _ response: Terminal.Response? = nil, modified: Int64? = nil
    ) throws(OutputFailure) -> String? {
        switch outputTarget {
        case .nowhere: return nil
        case .standardOutput(let isGuarded):
            let source = try BodySource(body)
            if isGuarded, BinaryBody.isBinary(source.firstBytes) { throw BinaryBody.terminalRefusal }
            try source.write(to: Output(STDOUT_FILENO, interruptDescriptor: interruptDescriptor), nil)
            return nil
        case .file(let path):
            try writeFile(path, body, modified: modified)
            return path
        case .folder(let folder, let opened):
            // Opened first, so that a missing source uses up no name.
            let source = try BodySource(body)
            let relative = item.name ?? outputNames.path(item.entry, index: item.index, response)
            let path = "\(folder)/\(relative)"
            let (parent, name) = try openFolder(of: relative, below: opened, path)
            let mayMove = source.isExclusivelyOwned && mover != nil
            let isThere = mayMove ? try OutputEntry(name, in: parent, at: path).fileStatus() != nil : false
            let old = isThere ? FilePermissions(ofFile: ByteText.cString(name), in: parent.descriptor) : nil
            // A renamed file keeps the owner and group of this process.
            if old?.belongsToThisProcess ?? true,
                source.moveFile(by: mover, to: name, in: parent.descriptor, mode: old?.mode, modified: modified)
            {
                if isThere { replacedFileCount += 1 }
            } else {
                let file = try NewFile(in: parent, named: name, at: path)
                if try write(source, to: file, path, modified: modified) { replacedFileCount += 1 }
            }
            return path
        }
    }

    /// Reserves and returns the name of an item's file before its request. Nil without a directory, and if the response
    /// determines the name.
    mutating func reserveName(for item: OutputItem) -> String? {
        guard case .folder = outputTarget else { return nil }
        return outputNames.pathBeforeResponse(item.entry, index: item.index)
    }

    /// Returns the path of an item's file, as far as it is known before the response; nil without a file.
    func expectedPath(_ item: OutputItem) -> String? {
        switch outputTarget {
        case .nowhere, .standardOutput: nil
        case .file(let path): path
        case .folder: outputNames.expectedPath(item.entry, index: item.index)
        }
    }

    /// Returns the existing file for an item.
    ///
    /// - Parameter name: reserved name in a directory.
    func existingFile(_ name: String?) -> ExistingFile? {
        var status = stat()
        switch outputTarget {
        case .nowhere, .standardOutput: return nil
        case .file(let path):
            // The write reports the reason why a path cannot be used.
            guard let target = try? OutputPath(path), unsafe stat(ByteText.cString(path), &status) == 0 else {
                return nil
            }
            guard case .file(let file) = target else { return ExistingFile(path, status) }
            guard unsafe lstat(ByteText.cString(file), &status) == 0 else { return nil }
            return ExistingFile(path, status, recordAt: file)
        case .folder(let folder, let opened):
            guard let name else { return nil }
            var parts = name.utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }
            guard let last = parts.popLast() else { return nil }
            // Opened one by one, because a link below the directory may lead out of it.
            var parent = opened
            for part in parts {
                guard let next = OpenFolder(existing: part, in: parent) else { return nil }
                parent = next
            }
            let path = "\(folder)/\(name)"
            guard let status = try? OutputEntry(last, in: parent, at: path).fileStatus() else { return nil }
            return ExistingFile(path, status)
        }
    }

    /// Returns the directory and the name of a file, with the directories of its path created.
    mutating func openFolder(
        of relative: String, below opened: OpenFolder, _ path: String
    ) throws(OutputFailure) -> (OpenFolder, String) {
        guard let slash = relative.utf8.lastIndex(of: UInt8(ascii: "/")) else { return (opened, relative) }
        let (parent, name) = (String(relative[..<slash]), String(relative[relative.utf8.index(after: slash)...]))
        if let lastFolder, lastFolder.path == parent { return (lastFolder.folder, name) }
        var folder = opened
        do throws(SystemError) {
            for part in parent.utf8.split(separator: UInt8(ascii: "/")) {
                folder = try OpenFolder(String(Substring(part)), in: folder)
            }
        } catch {
            throw .cannotWrite("cannot create the directory of \(path): \(error); give another name")
        }
        lastFolder = (parent, folder)
        return (folder, name)
    }

    private func writeFile(_ path: String, _ body: OutputBody, modified: Int64?) throws(OutputFailure) {
        let target = try OutputPath(path)
        let source = try BodySource(body)
        if case .file(let file) = target {
            let old = FilePermissions(ofPath: file)
            // A renamed file keeps the owner and group of this process.
            if old?.belongsToThisProcess ?? true,
                source.moveFile(by: mover, to: file, in: AT_FDCWD, mode: old?.mode, modified: modified)
            {
                return
            }
            _ = try write(source, to: try NewFile(for: file), path, modified: modified)
        } else {
            let opened = try OpenOutput(path, as: target, interrupt: interruptDescriptor)
            defer { withExtendedLifetime(opened) {} }
            try source.write(to: opened.output, nil)
        }
    }

    /// Returns the path that a new file replaces, with symbolic links resolved. Nil for a file that is opened for
    /// writing, such as a device, and for a path that cannot be resolved.
    static func replacedPath(_ path: String) -> String? {
        if case .file(let file)? = try? OutputPath(path) { file } else { nil }
    }

    private static func parentPath(of path: String) -> String {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        return slash.map { String(path[...$0]) } ?? "."
    }

    /// - Returns: whether the new file replaced another one.
    private func write(
        _ source: BodySource, to file: NewFile, _ path: String, modified: Int64? = nil
    ) throws(OutputFailure) -> Bool {
        try source.write(to: file.output, path)
        if let modified { file.setTime(modified) }
        return try file.commit()
    }
}

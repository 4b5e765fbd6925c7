internal import ArgumentParser

/// Options for the names and times of output files, and for files that exist.
struct FileOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Path of each file below -d DIR, from {host}, {path}, {name}, {n} (index) and {sha256}.",
            valueName: "path"),
        completion: ShellCompletion.noCompletion)
    var outTemplate: String?

    @Flag(help: "Name files as the server does, by Content-Disposition.")
    var remoteNameHeader = false

    @Flag(help: "Set the time of each file to its Last-Modified.")
    var remoteTime = false

    @Flag(help: "Skip URLs whose file exists. A repeated list then fetches only the rest.")
    var noClobber = false

    @Flag(help: "Replace a file only by a newer one. Implies --remote-time.")
    var timestamping = false

    @Flag(
        name: .customLong("continue"),
        help: """
            Fetch only the rest of files that exist, and after an interruption keep partial files of bodies that the bus \
            does not keep.
            """)
    var resumes = false

    @Flag(help: "Write the body of an HTTP failure, such as 404, as that of a success. The exit code stays.")
    var failBody = false

    @Option(
        help: ArgumentHelp(
            "Write the failed URLs and their causes to a file, as a list for -i; - is standard output.",
            valueName: "file"),
        completion: .file())
    var failed: String?

    /// Whether files get the time of the response.
    var setsModificationTime: Bool { remoteTime || timestamping }

    /// Whether each file is named before its request, in the order of the list.
    var namesFilesBeforeRequests: Bool { dependsOnExistingFiles || failed != nil }

    /// Whether a file that exists determines the request.
    var dependsOnExistingFiles: Bool { noClobber || timestamping || resumes }

    func parsedTemplate() throws(OutputTemplate.Fault) -> OutputTemplate? {
        guard let outTemplate else { return nil }
        return try OutputTemplate(outTemplate)
    }

    func validate() throws {
        let template: OutputTemplate?
        do throws(OutputTemplate.Fault) {
            template = try self.parsedTemplate()
        } catch {
            throw ValidationError("--out-template: \(error)")
        }
        guard template == nil || !remoteNameHeader else {
            throw ValidationError("--out-template and --remote-name-header exclude each other; give one of them")
        }
        guard [noClobber, timestamping, resumes].filter(\.self).count <= 1 else {
            throw ValidationError("--no-clobber, --timestamping and --continue exclude each other; give one of them")
        }
        if dependsOnExistingFiles, template?.needsBody == true || remoteNameHeader {
            let reason = "--no-clobber, --timestamping and --continue need names that are known before the request"
            throw ValidationError("\(reason); omit {sha256} and --remote-name-header")
        }
    }
}

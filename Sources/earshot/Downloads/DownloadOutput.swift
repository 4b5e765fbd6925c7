internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Output of the bodies of a run of `earshot get`: files, standard output, partial files and the bytes that stay.
struct DownloadOutput {
    /// Result of the write of a body.
    enum Result {
        /// The existing file stays, for this reason.
        case keptExisting(String, path: String?)
        /// The body was written or discarded, or the outcome has the cause of a failure.
        case finished(FetchOutcome)
        /// The body's file is missing. The outcome holds if the broker cannot send the body again.
        case bodyMissing(FetchOutcome)
        /// The reader of standard output has closed it.
        case outputClosed
        /// A signal ended a write.
        case interrupted
    }

    private(set) var destination: Destination
    let files: FileOptions
    /// Output of header fields; nil for none.
    private let headerOutput: HeaderOutput?
    /// Writer of a single body that is streamed; nil if its file is moved.
    private var stream: StreamedBody?
    /// Bodies whose bytes an interruption keeps.
    private(set) var arrivingBodies: ArrivingBodies

    /// - Parameters:
    ///   - isStreamable: whether the run has one body that may be written while it grows.
    ///   - start: start of the run in seconds since 1970.
    init(to destination: Destination, _ files: FileOptions, heads: HeaderOutput?, isStreamable: Bool, start: Int64) {
        self.destination = destination
        self.files = files
        self.headerOutput = heads
        // The head of a response is known only at its end.
        stream = isStreamable && heads == nil && !files.resumes ? destination.stream() : nil
        arrivingBodies = ArrivingBodies(start: files.resumes ? start : nil)
    }

    var isStreaming: Bool { stream != nil }

    /// Whether header fields are written.
    var hasHeaderOutput: Bool { headerOutput != nil }

    // MARK: Before a request

    /// Returns whether spool files are moved to the destination. A body that is moved is not streamed.
    mutating func canMoveFiles(from spool: String?) -> Bool {
        guard destination.canMoveFiles(from: spool) else { return false }
        stream = nil
        return true
    }

    /// Returns the path of an item's file if it is needed before the request.
    mutating func reserveName(of item: OutputItem) -> String? {
        files.namesFilesBeforeRequests ? destination.reserveName(for: item) : nil
    }

    /// The file of an item, if it determines the request.
    func existingFile(_ item: OutputItem) -> ExistingFile? {
        files.dependsOnExistingFiles ? destination.existingFile(item.name) : nil
    }

    // MARK: Events

    /// Whether the growing body is an error page, which is not written.
    func isUnwantedErrorPage(_ progress: Progress) -> Bool {
        progress.status.map { $0 >= 400 } == true && !files.failBody
    }

    /// Writes the bytes of a streamed body that have arrived.
    mutating func progressed(_ progress: Progress) throws(OutputFailure) {
        arrivingBodies.progressed(progress)
        try stream?.progressed(progress)
    }

    /// Writes the head of a response.
    func writeHead(_ outcome: FetchOutcome) throws(CommandError) { try headerOutput?.write(outcome) }

    /// Writes the body of an outcome, or the page of an HTTP failure with `--fail-body`.
    ///
    /// - Parameter storeFailure: `errno` value if a body that the broker sent could not be stored; nil for none.
    mutating func write(
        _ body: OutputBody, of item: OutputItem, _ outcome: FetchOutcome, storeFailure: Int32?
    ) -> Result {
        if outcome.status == 304, files.timestamping {
            return .keptExisting("unchanged", path: destination.existingFile(item.name)?.path)
        }
        let fields = outcome.response.map { HeaderFields(lines: $0.httpFields) } ?? HeaderFields()
        if outcome.code == nil, files.timestamping, let existing = destination.existingFile(item.name),
            existing.isRegular, FileTime.lastModified(of: fields).map({ $0 <= existing.modified }) == true
        {
            stream = nil
            return .keptExisting("unchanged", path: existing.path)
        }
        let resumption = item.partial.flatMap {
            $0.resumptionResult(of: outcome.status, fields, received: outcome.response?.bodyByteCount)
        }
        if let partial = item.partial, resumption == .fileComplete {
            return .keptExisting("complete", path: partial.path)
        }
        var outcome = outcome
        if let storeFailure {
            outcome.recordStoreFailure(storeFailure)
        } else if case .unusable(let reason) = resumption {
            (outcome.code, outcome.detail) = (FetchOutcome.writeFailedCode, reason)
        } else if let partial = item.partial, outcome.code == nil, resumption == .replaceWithBody,
            !partial.matchesDigest(of: outcome.response)
        {
            outcome.code = FetchOutcome.digestMismatchCode
        } else if outcome.code == nil || files.failBody && item.partial == nil && outcome.hasErrorPage {
            do throws(OutputFailure) {
                try writeToItemFile(body, of: item, &outcome, fields, continues: resumption == .body)
            } catch {
                outcome.code = FetchOutcome.writeFailedCode
                switch error {
                case .sourceLost:
                    outcome.detail = "its spool file is missing"
                    return .bodyMissing(outcome)
                case .readerClosed: return .outputClosed
                case .interrupted: return .interrupted
                case .cannotWrite(let sentence): outcome.detail = sentence
                }
            }
        }
        return .finished(outcome)
    }

    /// Writes a body to the item's file, or to the end of its partial file, and puts the path into the outcome.
    private mutating func writeToItemFile(
        _ body: OutputBody, of item: OutputItem, _ outcome: inout FetchOutcome, _ fields: HeaderFields, continues: Bool
    ) throws(OutputFailure) {
        let modified = files.setsModificationTime ? outcome.response.flatMap { FileTime.lastModified(of: $0) } : nil
        if let partial = item.partial, continues {
            outcome.path = try destination.append(body, to: partial, of: item, modified: modified)
            if outcome.path == nil { outcome.code = FetchOutcome.digestMismatchCode }
        } else if let stream, let response = outcome.response, try stream.finish(response, modified: modified) {
            outcome.path = destination.onlyFile
            self.stream = nil
        } else {
            outcome.path = try destination.write(body, of: item, outcome.response, modified: modified)
        }
        if files.resumes, outcome.code == nil, let path = outcome.path, let response = outcome.response {
            let start = continues ? item.partial?.length ?? 0 : 0
            PartialBodyRecord.keepRecord(
                of: fields, length: start + response.bodyByteCount, at: Destination.replacedPath(path) ?? path)
        }
    }

    /// Forgets the body of a request that has ended. That of an interrupted transfer stays for a later run.
    mutating func requestEnded(_ request: RequestID, _ item: OutputItem, _ outcome: FetchOutcome) {
        // The part that arrived belongs to an error page.
        if outcome.code == "http-status" { stream = nil }
        if let code = outcome.code { arrivingBodies.transferFailed(request, item, code, in: &destination) }
        forgetBody(of: request)
    }

    /// Forgets the body of a request whose file stays.
    mutating func forgetBody(of request: RequestID) { arrivingBodies.requestEnded(request) }

    // MARK: End

    /// Keeps the bytes of the bodies that have not ended.
    ///
    /// - Parameter isPulling: whether bodies come over the connection.
    mutating func keepPartialBodies(of pending: [RequestID: OutputItem], isPulling: Bool) {
        arrivingBodies.isPulling = isPulling
        for (request, item) in pending { arrivingBodies.keepPartialBody(request, item, in: &destination) }
    }

    /// Discards an incomplete file.
    mutating func discardStream() { stream = nil }
}

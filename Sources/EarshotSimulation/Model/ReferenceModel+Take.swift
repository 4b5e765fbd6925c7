internal import DequeModule
internal import EarshotCore
internal import EarshotWire

/// Files that TAKE gives to one client: invariant 15.
extension ReferenceModel {
    /// Sessions that know a spool file.
    struct FileAudience {
        /// Sessions that know the present file of this name. Ended ones may still have it open.
        var presentSessions: [SessionRecord] = []
        /// Sessions that knew any file of this name since its last release.
        var allSessions: [SessionRecord] = []
        /// Whether a TAKE of the file was refused.
        var isTakeRefused = false

        mutating func addSession(_ session: SessionRecord) {
            presentSessions.append(session)
            allSessions.append(session)
        }
    }

    /// Handles TAKE, after the shell has renamed the file if the core permits that.
    func takeRequested(_ sequence: UInt64, by client: SessionRecord, _ renamed: FileRename?) {
        guard let request = unacknowledgedRequest(sequence, to: client), let ending = request.ending,
            let file = announcedFileName(ending, for: request)
        else {
            expect(
                renamed == nil, 15, "client \(client.id.rawValue) takes \(renamed?.file ?? ""), which is not its own")
            expectedReplies[client.connection] = .error("unknown-body")
            return
        }
        let isLone = referenceCount(of: file) == 1
        if let renamed {
            let audience = audiences[file, default: FileAudience()].presentSessions
            expect(
                renamed.file == file && isLone && audience.allSatisfy { $0 === client }, 15,
                "\(file) of \(request.name) is given to client \(client.id.rawValue), and others have it")
            request.ending?.takenFileName = renamed.newName
            expect(files.remove(file) != nil, 12, "\(file) is given away after its release")
            files.insert(renamed.newName)
            audiences[file] = nil
        } else if ending.takenFileName == nil {
            let audience = audiences[file, default: FileAudience()]
            let isCertain =
                isLone && !isRemoving && !audience.isTakeRefused && audience.allSessions.allSatisfy { $0 === client }
                && ending.completion?.attempt.broker == instance
                && !Trial.isFileLinkedElsewhere(sequence)
            expect(!isCertain, 15, "\(file) of \(request.name) is not given to client \(client.id.rawValue)")
            audiences[file, default: FileAudience()].isTakeRefused = true
        }
        expectedReplies[client.connection] = .taken(
            sequence, path: request.ending?.takenFileName.map { "/spool/" + $0 })
    }

    /// Name of the spool file that the terminal of a request names; nil without one.
    func announcedFileName(_ ending: Ending, for request: RequestRecord) -> String? {
        request.fetch.options.isCacheWarming || request.fetch.options.delivery == .inline
            ? nil : spoolFileName(of: ending, for: request)
    }

    /// Name of the spool file that holds the body of a request; nil without one.
    func spoolFileName(of ending: Ending, for request: RequestRecord) -> String? {
        guard let completion = ending.completion else { return nil }
        if let file = ending.takenFileName ?? completion.fileName { return file }
        let isDemanded = request.fetch.options.delivery == .file && !request.fetch.options.isCacheWarming
        return isDemanded && ending.body != nil && completion.bodyByteCount > 0 ? completion.sha256 : nil
    }

    /// Returns whether a repeated request must not get the file of an earlier one, because another client owns it.
    func isTakenByAnother(_ request: RequestRecord, _ fetch: Fetch, for client: SessionRecord) -> Bool {
        request.ending?.takenFileName != nil && fetch.options.subscribes && !isTerminalDue(request, to: client)
    }

    /// Records a new file under a name.
    func fileCreated(_ file: String, knownTo sessions: [SessionRecord] = []) {
        if referenceCount(of: file) == 0 { audiences[file]?.presentSessions = [] }
        files.insert(file)
        for session in sessions { audiences[file, default: FileAudience()].addSession(session) }
    }

    /// Records that a session gets the path of a growing file.
    func growthReported(_ path: String, _ generation: Generation?, to client: SessionRecord) {
        if let generation { growthReaders[generation.description, default: []].append(client) }
        let name = path.split(separator: "/").last.map(String.init) ?? ""
        guard let attempt = SpoolName.writer(of: name)?.attempt else { return }
        for worker in pool.values where worker.leases[attempt] != nil {
            worker.leases[attempt]?.sessionsKnowingFile.append(client)
        }
    }

    /// Returns the request of a terminal that was sent and not acknowledged.
    private func unacknowledgedRequest(_ sequence: UInt64, to client: SessionRecord) -> RequestRecord? {
        let sent = client.unacknowledgedTerminals + client.redeliveries
        guard sequence > client.lastAcknowledged, sequence - client.lastAcknowledged <= UInt64(sent.count) else {
            return nil
        }
        return sent[Int(sequence - client.lastAcknowledged) - 1]
    }

    /// Number of terminals and kept results whose body is in a file. O(requests).
    private func referenceCount(of file: String) -> Int {
        func isUser(_ request: RequestRecord) -> Bool {
            request.ending.map { self.spoolFileName(of: $0, for: request) == file } ?? false
        }
        var count = requestsByName.values.count { $0.phase == .awaitingSubscriber && isUser($0) }
        for client in sessions.values {
            let terminals =
                client.unsentTerminals.values.joined()
                + (client.unacknowledgedTerminals + client.redeliveries).compactMap(\.self)
            count += terminals.count { isUser($0) }
        }
        count += openFlights.values.count { $0.abandonedEnding?.completion?.fileName == file }
        return count
    }
}

/// Rename of a spool file that its receiver owns from then on.
struct FileRename {
    let file: String
    let newName: String
}

internal import EarshotCore
internal import EarshotDurable
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Logging

/// Interpreter of the core's actions: messages, files, cache and durable requests. `BrokerProcess` calls it in each
/// pass.
extension BrokerProcess {
    /// Minimum length of a part of a body that is sent from its file, in bytes. Each such part holds a descriptor while
    /// it is unsent, so a client that reads nothing holds thirteen at most.
    private static let minimumFilePartBytes = 65_536

    /// Carries out actions until none are left. Sending can report events to the core that cause further actions.
    func carryOutActions() {
        while true {
            var actions = core.takeActions()
            guard !actions.isEmpty else {
                // Immediate answers of the cache can make flights ready for assignment.
                guard let cache, cache.hasAnsweredImmediately else { return }
                cache.hasAnsweredImmediately = false
                core.dispatch(now: MonotonicTime(nanoseconds: loop.now.nanoseconds)) {
                    clientPort.mayHaveUnreadInput($0.rawValue)
                }
                continue
            }
            actions.reverseInPlace()
            while let action = actions.popLast() { carryOut(action) }
        }
    }

    // One switch over both levels: to bind a destination's action first would copy it.
    private func carryOut(_ action: Action) {
        switch action {
        case .client(.send(let client, .progress(let progress))): sendUnretainedProgress(to: client, progress)
        case .client(.send(let client, let message)): sendUnretained(to: client, head: message.encoded())
        case .client(.replyToNumberedMessage(let client, let message, let json, let number)):
            sendUnretained(to: client, head: NumberedAnswer(message, answeredNumber: number).encoded(), body: json)
        case .client(.answerQuery(let client, let query, let json)):
            sendUnretained(to: client, head: BrokerMessage.queryAnswer(query).encoded(), body: json)
        case .client(.deliverTerminal(let client, let terminal, let body)): deliver(terminal, body, to: client)
        case .client(.sendBodyPiece(let client, let piece)): sendPiece(piece, to: client)
        case .client(.close(let client, let reason)):
            sendUnretained(to: client, head: BrokerMessage.goodbye(reason: reason).encoded())
            clientPort.close(client.rawValue)
        case .worker(.send(let worker, .limits(let limits))): sendLimits(limits, to: worker)
        case .worker(.send(let worker, let message)):
            if case .job(let job) = message { sendJobFiles(of: job.route, to: worker) }
            // A worker that is full or gone loses its jobs with its connection.
            sendMessage(message.encoded(), nil, to: worker)
        case .worker(.sendJob(let worker, let job, let body)):
            sendJobFiles(of: job.route, to: worker)
            sendMessage(PoolMessage.job(job).encoded(), bodies[body], to: worker)
        case .worker(.resumeJob(let worker, let job, let keys)):
            sendJobFiles(of: job.route, to: worker)
            sendMessage(PoolMessage.job(addingResumedPart(to: job, keys, by: worker)).encoded(), nil, to: worker)
        case .worker(.kill(let worker)): kill(worker)
        case .worker(.close(let worker)): disconnect(worker)
        case .spool(.spillBody(let body, let file)): spillBody(body, toFile: file)
        case .spool(.writeBody(let body, let file)): writeBodyFile(file, of: body)
        case .spool(.releaseBody(let body)): bodies.releaseBody(body)
        case .spool(.releaseFile(let file)): releaseFile(file)
        // If the file is missing, the worker does not find it either and starts from the beginning.
        case .spool(.assignPart(let kept, let name)):
            spool.rename(kept, to: name)
            parts?.fileRenamed(kept, to: name)
        case .spool(.removePart(let name)):
            spool.remove(name)
            parts?.removeDescription(ofFile: name)
        case .spool(.recordPart(let file, let keys, let part)):
            parts?.recordDescription(ofFile: file, keys: keys, part: part)
        case .spool(.storePart(let file)): if parts?.storePart(fromSpoolFile: file) != true { spool.remove(file) }
        case .spool(.removeStaleAttemptFiles):
            parts?.recoverPartsFromSpools()
            spool.removeUnfinishedFiles { core.isAttemptRunning($0) }
        case .cache(.lookUpVariants(let flight, let key, let request)): lookUpInCache(flight, key, request)
        case .cache(.readBody(let flight, let entry, let range)): readFromCache(flight, entry, range)
        case .cache(.storeResponse(let key, let variant, let body, let file, let owner)):
            cache?.store(key, variant, body.flatMap { bodies[$0] }, file: file.flatMap(spool.open), owner: owner)
        case .cache(.updateStoredFields(let key, let entry, let response)): cache?.refresh(key, entry, response)
        case .cache(.discardEntry(let key, let entry)): cache?.discard(key, entry)
        case .cache(.invalidateURLs(let urls)): cache?.invalidate(urls.map(\.description))
        case .cache(.setMaximumSize(let bytes)): cache?.setLimit(bytes: bytes)
        case .durable(.readRows(let id, let principal)):
            durableStore?.submit(.rows(after: id?.rawValue, principal: principal?.description))
        case .durable(.storeRequest(let id, let principal, let acceptedAt, let head)):
            durableStore?.submit(
                .store(id: id.rawValue, principal: principal?.description, acceptedAt: acceptedAt, head: head))
        case .durable(.storeResult(let id, let result)): storeDurableResult(result, of: id)
        case .durable(.readResult(let id)): durableStore?.submit(.read(id: id.rawValue))
        case .durable(.reopenRequest(let id, let acceptedAt)):
            durableStore?.submit(.reopen(id: id.rawValue, acceptedAt: acceptedAt))
        case .durable(.deleteRequest(let id)): durableStore?.submit(.deleteRequest(id: id.rawValue))
        case .durable(.setMaximumSize(let bytes)): durableStore?.submit(.setLimit(bytes: bytes))
        case .supervisor(.killWorker(let pid)):
            logger.warning("a worker of the earlier broker does not answer: it is killed", metadata: ["pid": "\(pid)"])
            supervisor?.requestKill(worker: pid)
        case .supervisor(.settingChanged(let change)):
            logger.notice(
                "a client changed a setting", metadata: ["setting": "\(change.normalizedWords.joined(separator: " "))"])
            settingsChanged()
            supervisor?.reportChange(change)
        case .supervisor(.requestEnded(let ended)): supervisor?.reportEnd(ended)
        case .log(.attemptAssigned(let assigned)): logAssignment(assigned)
        }
    }

    /// Sends the files that a job names to its worker, as far as it lacks them.
    private func sendJobFiles(of route: Route, to worker: WorkerID) {
        if let (message, content, workers) = jobFiles.changedHostsMessage(now: loop.now) {
            // A worker that is full learns of the next change.
            for worker in workers { _ = workerPort.send(message.encoded(), content, to: worker) }
        }
        guard !route.isDefault else { return }
        for (message, content) in jobFiles.fileMessages(for: route, to: worker.rawValue) {
            // A worker that is full does not accept the JOB either.
            _ = workerPort.send(message.encoded(), content, to: worker.rawValue)
        }
    }

    /// Sends a message to a worker. One on another machine may leave fewer bytes unread.
    private func sendMessage(_ head: [UInt8], _ body: [UInt8]?, to worker: WorkerID) {
        let kind: StreamPort.MessageKind = workerPort.isGateway(worker.rawValue) ? .data : .reply
        if workerPort.send(head, body, to: worker.rawValue, as: kind) == .wouldBlock { workerBlocked(worker) }
    }

    /// Sends a worker its limits, with a folder of its own in the spool. A process of another PID namespace has no ID
    /// here, and no file.
    private func sendLimits(_ limits: WorkerLimits, to worker: WorkerID) {
        var limits = limits
        let pid = workerPort.pid(of: worker.rawValue)
        if !limits.spoolPath.isEmpty, pid > 0 { limits.spoolPath = spool.makeFolder(of: pid) }
        sendMessage(PoolMessage.limits(limits).encoded(), nil, to: worker)
    }

    private func disconnect(_ worker: WorkerID) {
        guard !workerPort.isGateway(worker.rawValue) else {
            logger.warning("disconnected a worker of another machine")
            return workerPort.close(worker.rawValue)
        }
        logger.warning(
            "disconnected a worker that the user started", metadata: ["pid": "\(workerPort.pid(of: worker.rawValue))"])
        workerPort.close(worker.rawValue)
    }

    private func releaseFile(_ file: String) {
        // Content can be in both places, because the inline limit differed between two responses.
        bodies.releaseFile(named: file)
        spool.remove(file)
    }

    private func workerBlocked(_ worker: WorkerID) {
        core.workerSocketFull(worker, now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
    }

    /// Spills a body. On failure it stays in memory, also for terminals of this pass that name its file.
    private func spillBody(_ body: BodyID, toFile file: String) {
        do { try bodies.spill(body, toFileNamed: file) } catch {
            logger.error("cannot spill a body", metadata: ["error": "\(error)"])
            core.bodySpillFailed(body, now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
        }
    }

    /// Sends a message that is not retained for a client that cannot accept it.
    private func sendUnretained(to client: ClientID, head: [UInt8], body: [UInt8]? = nil) {
        guard clientPort.send(head, body, to: client.rawValue) == .wouldBlock else { return }
        // The broker does not read from a client with unread replies, so only replies to earlier messages get here.
        clientPort.close(client.rawValue)
    }

    /// Sends a PROGRESS. If the client cannot accept it, the core sends the current progress once it can.
    private func sendUnretainedProgress(to client: ClientID, _ progress: Progress) {
        let head = BrokerMessage.progress(progress).encoded()
        guard clientPort.send(head, to: client.rawValue, as: .progress) == .wouldBlock else { return }
        core.socketRefusedProgress(progress.handler, progress.request, by: client)
        recordRefusedMessage(by: client)
    }

    /// Notes that a connection refused a message, so that the core learns when it accepts messages again.
    private func recordRefusedMessage(by client: ClientID) {
        refusingClients[client] = refusingClients[client] ?? false
    }

    private func deliver(_ terminal: Terminal, _ body: BodyID?, to client: ClientID) {
        // Preserves the order: no terminal overtakes one that was refused in this pass.
        guard refusingClients.isEmpty || refusingClients[client] != true else { return }
        if isAccessLogEnabled { logAccess(terminal, of: core.principal(of: client)) }
        let (head, content) = terminalMessage(terminal, body)
        switch clientPort.send(head, content, to: client.rawValue, as: .terminal) {
        case .wouldBlock:
            refusingClients[client] = true
            core.socketRefusedTerminal(terminal.sequence, by: client)
        case .sent, .unreachable: break
        }
    }

    /// Sends a part of a body. No file is opened for a client that cannot accept it; the core repeats the action
    /// once it can.
    private func sendPiece(_ piece: BodyPiece, to client: ClientID) {
        guard clientPort.acceptsData(for: client.rawValue) else {
            recordRefusedPiece(piece, by: client)
            return
        }
        let head = BrokerMessage.bodyData(piece.dataHead).encoded()
        let (offset, count) = (piece.dataHead.offset, piece.maximumBytes)
        let outcome: StreamPort.SendResult
        if count >= Self.minimumFilePartBytes,
            let part = spool.openFilePart(of: piece.file, fromOffset: offset, byteCount: count)
        {
            outcome = clientPort.send(head, part, to: client.rawValue)
        } else if case let bytes = spool.read(piece.file, from: offset, count: count), !bytes.isEmpty {
            outcome = clientPort.send(head, bytes, to: client.rawValue, as: .data)
        } else {
            core.bodyPieceUnreadable(piece, by: client, now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
            return
        }
        if outcome == .wouldBlock { recordRefusedPiece(piece, by: client) }
    }

    private func recordRefusedPiece(_ piece: BodyPiece, by client: ClientID) {
        core.socketRefusedPiece(piece, by: client)
        recordRefusedMessage(by: client)
    }
}

internal import EarshotHTTP
public import EarshotWire

/// Progress of running transfers: its receivers, its intervals, and the location of a growing body.
/// `attemptProgressed` begins it.
extension BrokerCore {
    /// Sends the progress of an attempt to the subscribers of a request, at most once per requested interval. A timer
    /// sends progress that comes within the interval, because it may be the last.
    mutating func sendProgress(of interest: Handle<Interest>, _ lease: WorkerLease, now: MonotonicTime) {
        let record = records.requests[interest]
        guard let number = record.rareOptions, let pause = records.requests[number].progressIntervalMilliseconds else {
            return
        }
        if let due = records.requests[number].lastProgressAt?.advanced(byMilliseconds: pause), now < due {
            guard records.requests[number].nextProgressTimerAt != due else { return }
            records.requests[number].nextProgressTimerAt = due
            records.setTimer(at: due, for: .nextProgressMessage(records.requests.reference(to: interest)))
            return
        }
        records.requests[number].lastProgressAt = now
        records.requests[number].nextProgressTimerAt = nil
        let progress = progress(of: interest, lease)
        // Clients that are away get no progress.
        for client in records.subscribers(of: record.handler) where !records.clients[client].isAway {
            sendProgress(progress, of: interest, to: client)
            records.clients[client].missedProgress.removeUnlessEmpty(forKey: interest)
        }
    }

    /// Sends the progress that came within the interval of the last one.
    mutating func progressTimerFired(_ reference: GenerationalHandle<Interest>, now: MonotonicTime) {
        let interest = reference.record
        guard records.isTimerCurrent(.nextProgressMessage(reference)),
            let number = records.requests[interest].rareOptions,
            records.requests[number].nextProgressTimerAt.map({ $0 <= now }) ?? false,
            let lease = runningLease(of: interest)
        else { return }
        sendProgress(of: interest, lease, now: now)
    }

    /// Returns the lease of a request's running transfer; nil without one, and for a request that is being removed.
    private func runningLease(of interest: Handle<Interest>) -> WorkerLease? {
        guard records.requests[interest].phase == .open, !records.isAwaitingRemoval(interest),
            case .running(let worker) = records.flights[records.lastRedirectedFlight(ofOpen: interest)].phase
        else { return nil }
        let flight = records.lastRedirectedFlight(ofOpen: interest)
        return records.workers[worker].leases[records.currentAttempt(of: flight)]
    }

    /// Returns the progress of an attempt for the subscribers of a request.
    private mutating func progress(of interest: Handle<Interest>, _ lease: WorkerLease) -> Progress {
        let record = records.requests[interest]
        var progress = Progress(
            handler: records.handlers[record.handler].id, request: record.request, receivedBytes: lease.receivedBytes,
            totalBytes: lease.wholeBodyBytes)
        if let number = record.rareOptions, records.requests[number].isStreaming, let part = lease.partFile,
            Flights.mayReadGrowingBody(part.responseFields, interest, in: &records)
        {
            progress.filePath = records.workerLimits.spoolPath + "/" + SpoolName.relativePath(of: part.file)
            progress.generation = Generation(part.generation)
            if !part.responseFields.isEmpty {
                progress.status = part.status ?? 200
                progress.httpFields = part.responseFields.bytes
            }
        }
        progress.isResumable = lease.partFile?.isDescriptionStored ?? false
        return progress
    }

    /// Records a PROGRESS that the socket refused. When the socket is writable, `sendMissedProgress` sends the progress
    /// of that time.
    public mutating func socketRefusedProgress(_ handler: HandlerID, _ request: RequestID, by id: ClientID) {
        guard let client = records.clients.handle(of: id),
            let handler = records.handlers.handle(of: records.handlerKey(handler, of: client)),
            let interest = records.interestHoldingID(request, of: handler),
            records.clients[client].missedProgress.count < records.limits.maximumRetriedProgressPerClient
        else { return }
        records.clients[client].missedProgress[interest] = records.requests[interest].generation
    }

    /// Sends a client the current progress of transfers whose PROGRESS its socket refused.
    mutating func sendMissedProgress(to client: Handle<ClientSession>) {
        let missed = records.clients[client].missedProgress.sorted { $0.key < $1.key }
        records.clients[client].missedProgress = [:]
        for (interest, generation) in missed {
            guard records.requests.contains(interest), records.requests[interest].generation == generation,
                records.subscribers(of: records.requests[interest].handler).contains(client),
                let lease = runningLease(of: interest)
            else { continue }
            sendProgress(progress(of: interest, lease), of: interest, to: client)
        }
    }

    private mutating func sendProgress(
        _ progress: Progress, of interest: Handle<Interest>, to client: Handle<ClientSession>
    ) {
        if progress.filePath != nil { Delivery.recordFileReader(client, ofGrowing: interest, in: &records) }
        let pulled =
            records.bodyPulls.isEmpty ? progress : Delivery.progressForPulling(progress, to: client, in: &records)
        records.sendMessage(.progress(pulled), to: client)
    }
}

internal import EarshotHTTP
public import EarshotWire

/// Progress of running transfers: to whom and how often it is sent, and where readers of a growing body find it.
/// `attemptProgressed` begins it.
extension BrokerCore {
    /// Sends the progress of an attempt to the subscribers of a request, at most once per requested interval. A timer
    /// sends what comes within the interval, because no more bytes may come.
    mutating func sendProgress(of interest: Handle<Interest>, _ lease: WorkerLease, now: Tick) {
        let record = records.requests[interest]
        guard let number = record.extras, let pause = records.requests[number].progressMilliseconds else { return }
        if let due = records.requests[number].lastProgress?.advanced(byMilliseconds: pause), now < due {
            guard records.requests[number].progressTimer != due else { return }
            records.requests[number].progressTimer = due
            records.setTimer(due, .progress(records.requests.reference(to: interest)))
            return
        }
        records.requests[number].lastProgress = now
        records.requests[number].progressTimer = nil
        let progress = progress(of: interest, lease)
        // Those that are away learn nothing of it.
        for client in records.listeners(of: record.handler) where !records.clients[client].isAway {
            send(progress, of: interest, to: client)
            records.clients[client].missedProgress.drop(interest)
        }
    }

    /// Sends the progress that came within the interval of the last one.
    mutating func progressDue(_ reference: GenerationalHandle<Interest>, now: Tick) {
        let interest = reference.record
        guard records.isLive(.progress(reference)), let number = records.requests[interest].extras,
            records.requests[number].progressTimer.map({ $0 <= now }) ?? false, let lease = runningLease(of: interest)
        else { return }
        sendProgress(of: interest, lease, now: now)
    }

    /// Returns the lease of a request's running transfer; nil without one, and for a request that is being removed.
    private func runningLease(of interest: Handle<Interest>) -> WorkerLease? {
        guard records.requests[interest].phase == .open, !records.isDoomed(interest),
            case .running(let worker) = records.flights[records.leaf(ofOpen: interest)].phase
        else { return nil }
        return records.workers[worker].leases[records.attempt(of: records.leaf(ofOpen: interest))]
    }

    /// Returns the progress of an attempt for the subscribers of a request.
    private mutating func progress(of interest: Handle<Interest>, _ lease: WorkerLease) -> Progress {
        let record = records.requests[interest]
        var progress = Progress(
            handler: records.handlers[record.handler].id, request: record.request, received: lease.receivedBytes,
            total: lease.totalBytes)
        if let number = record.extras, records.requests[number].streams, let part = lease.part,
            Flights.mayRead(part.fields, interest, in: &records)
        {
            progress.file = records.workerLimits.spool + "/" + SpoolName.path(part.file)
            progress.generation = Generation(part.generation)
            if !part.fields.isEmpty {
                progress.status = part.status ?? 200
                progress.httpFields = part.fields.bytes
            }
        }
        progress.isResumable = lease.part?.isRecorded ?? false
        return progress
    }

    /// Records a PROGRESS that the socket refused. `sendMissedProgress` sends the state at the time when the socket is
    /// writable.
    public mutating func progressRefused(_ handler: HandlerID, _ request: RequestID, by id: ClientID) {
        guard let client = records.clients.handle(of: id),
            let handler = records.handlers.handle(of: records.key(handler, of: client)),
            let interest = records.listedInterest(request, of: handler),
            records.clients[client].missedProgress.count < records.limits.missedProgress
        else { return }
        records.clients[client].missedProgress[interest] = records.requests[interest].generation
    }

    /// Sends a client the current progress of transfers whose PROGRESS its socket refused.
    mutating func sendMissedProgress(to client: Handle<ClientSession>) {
        let missed = records.clients[client].missedProgress.sorted { $0.key < $1.key }
        records.clients[client].missedProgress = [:]
        for (interest, generation) in missed {
            guard records.requests.contains(interest), records.requests[interest].generation == generation,
                records.listeners(of: records.requests[interest].handler).contains(client),
                let lease = runningLease(of: interest)
            else { continue }
            send(progress(of: interest, lease), of: interest, to: client)
        }
    }

    private mutating func send(_ progress: Progress, of interest: Handle<Interest>, to client: Handle<ClientSession>) {
        if progress.file != nil { Delivery.noteReader(client, ofGrowing: interest, in: &records) }
        let pulled = records.pulls.isEmpty ? progress : Delivery.pulled(progress, to: client, in: &records)
        records.send(.progress(pulled), to: client)
    }
}

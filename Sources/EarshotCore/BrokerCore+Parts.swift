internal import EarshotHTTP
public import EarshotWire

/// What is left of transfers that broke off: who has it, who goes on with it, how long it stays.
///
/// A worker writes a body into a file named after its attempt. When the attempt ends without it, the shell takes the
/// file back under `keptName` and says so by `partKept`, before it tells of the end. From then on it waits for the next
/// attempt of its flight, or, if that is gone, aside under its key: for a while, and within bounds.
extension BrokerCore {
    /// What the shell calls the file of an attempt that it has taken back.
    public static func keptName(of attempt: AttemptID) -> String { "\(attempt).kept" }

    // MARK: Events

    /// The file of an attempt was taken back from a worker that is about to be done with it, or is dead. It holds so
    /// many bytes.
    public mutating func partKept(of attempt: AttemptID, bytes: Int, by id: WorkerID) {
        guard holds(attempt, id), let worker = workerNumbers[id] else {
            actions.append(.removePart(Self.keptName(of: attempt)))
            return
        }
        workers[worker].leases[attempt]?.keptBytes = bytes
    }

    /// The time of something kept aside is over.
    mutating func asideEnded(_ serial: UInt64) {
        guard let entry = aside.first(where: { $0.value.serial == serial }) else { return }
        aside[entry.key] = nil
        remove(entry.value.part)
    }

    // MARK: Queries

    /// The files in which the bodies of a worker's attempts grow, as far as anything could go on with them.
    public func parts(of id: WorkerID) -> [(attempt: AttemptID, file: String)] {
        guard let worker = workerNumbers[id] else { return [] }
        return workers[worker].leasesInOrder.compactMap { attempt, lease in
            guard let part = lease.part, !part.fields.isEmpty, lease.orphan == nil else { return nil }
            return (attempt, part.file)
        }
    }

    /// The file that `parts` names for this attempt; nil if there is none.
    public func part(of attempt: AttemptID, by id: WorkerID) -> String? {
        guard holds(attempt, id), let worker = workerNumbers[id],
            let part = workers[worker].leases[attempt]?.part,
            !part.fields.isEmpty
        else { return nil }
        return part.file
    }

    // MARK: Steps

    /// A worker told of the file it writes: another than before begins with another representation's first byte.
    mutating func partTold(_ told: BodyPart?, of attempt: AttemptID, at worker: Int32) {
        guard let told, let lease = workers[worker].leases[attempt],
            ["part", "anew.part"].contains(where: { told.file == "\(workers[worker].pid)-\(attempt).\($0)" })
        else { return }
        // A body with longer fields has no RESULT: no later attempt goes on with it.
        let lines = told.httpFields.count <= WireLimits.responseFieldBytes ? told.httpFields : []
        if lease.part?.file != told.file {
            workers[worker].leases[attempt]?.part = GrowingPart(
                file: told.file, fields: HeaderFields(lines: lines), generation: attempt)
        } else if !lines.isEmpty {
            workers[worker].leases[attempt]?.part?.fields = HeaderFields(lines: lines)
        }
    }

    /// What is left of an attempt that has ended goes to its flight, or aside if that is gone.
    mutating func keepPart(of lease: WorkerSession.Lease, _ attempt: AttemptID) {
        guard let bytes = lease.keptBytes else { return }
        let file = Self.keptName(of: attempt)
        let request = lease.flight >= 0 ? flights[lease.flight].request : lease.abandoned?.request
        guard let growing = lease.part, let request,
            let body = ResumeRule().beginning(
                Int64(bytes), status: 200, response: growing.fields, of: request, now: calendarSeconds)
        else {
            actions.append(.removePart(file))
            return
        }
        spoolUse.keptBytes += bytes
        let part = KeptPart(file: file, body: body, fields: growing.fields, generation: growing.generation)
        if lease.flight >= 0 {
            keep(part, for: lease.flight)
        } else if let key = lease.abandoned?.key {
            if let successor = openFlight(key), !flights[successor].isRunning, parts[successor] == nil {
                keep(part, for: successor)
            } else {
                putAside(part, key)
            }
        }
    }

    private mutating func keep(_ part: KeptPart, for flight: Int32) {
        if let earlier = parts[flight] { remove(earlier) }
        guard parts[flight] != nil || parts.count < limits.keptParts else {
            remove(part)
            return
        }
        parts[flight] = part
    }

    /// Keeps what is left of a flight that ends.
    mutating func putPartAside(of flight: Int32) {
        guard let part = parts.drop(flight) else { return }
        putAside(part, flights[flight].key)
    }

    private mutating func putAside(_ part: KeptPart, _ key: FlightKey) {
        guard limits.partsAside > 0, part.bytes <= limits.partsAsideBytes else {
            remove(part)
            return
        }
        if let earlier = aside.removeValue(forKey: key) { remove(earlier.part) }
        func isOver() -> Bool {
            aside.count >= limits.partsAside
                || aside.values.reduce(part.bytes) { $0 + $1.part.bytes } > limits.partsAsideBytes
        }
        while isOver(), removeOldestAside() {}
        let serial = nextSerial()
        aside[key] = PartAside(part: part, serial: serial)
        setTimer(clock.advanced(byMilliseconds: limits.asideMilliseconds), .aside(serial: serial))
    }

    /// - Returns: whether there was one.
    mutating func removeOldestAside() -> Bool {
        guard let oldest = aside.min(by: { $0.value.serial < $1.value.serial }) else { return false }
        aside[oldest.key] = nil
        remove(oldest.value.part)
        return true
    }

    /// A new flight goes on with what was kept aside under its key.
    mutating func takePartBack(for flight: Int32, _ key: FlightKey) {
        guard !aside.isEmpty, let entry = aside.removeValue(forKey: key) else { return }
        keep(entry.part, for: flight)
    }

    /// Gives a worker what is left of its flight's earlier attempts, if it may go on with it.
    ///
    /// - Returns: what its JOB says of it, and the file, as the worker calls it.
    mutating func lendPart(
        of flight: Int32, as attempt: AttemptID, to worker: Int32, maxBytes: Int?
    ) -> (resume: Job.Resume, part: GrowingPart)? {
        guard let part = parts.drop(flight) else { return nil }
        guard part.bytes <= maxBytes ?? .max, let validator = part.body.validator.ifRange else {
            remove(part)
            return nil
        }
        spoolUse.keptBytes -= part.bytes
        let file = "\(workers[worker].pid)-\(attempt).part"
        actions.append(.lendPart(part.file, as: file))
        let total = part.body.totalBytes.map { Int($0) }
        return (
            Job.Resume(bytes: part.bytes, total: total, validator: validator),
            GrowingPart(file: file, fields: part.fields, generation: part.generation)
        )
    }

    mutating func remove(_ part: KeptPart) {
        spoolUse.keptBytes -= part.bytes
        actions.append(.removePart(part.file))
    }
}

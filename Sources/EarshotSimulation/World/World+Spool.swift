internal import EarshotCore
internal import EarshotWire

/// Partial bodies in the spool by name, as workers and the broker's shell see them.
extension World {
    /// Entity tag of the present version of a URL's content.
    func entityTag(of key: Int) -> String { "\"\(key).\(contentVersions[key, default: 1])\"" }

    func entityTagFields(of tag: String) -> [UInt8] { Array("etag: \(tag)".utf8) }

    private func partFileName(_ attempt: AttemptID, _ number: Int, startsAnew: Bool = false) -> String {
        "\(number + 1)-\(attempt)\(startsAnew ? ".anew" : "").part"
    }

    // MARK: Workers

    /// Handles the start of a response: a lent partial body is resumed if it is of the current version, otherwise
    /// dropped.
    /// - Returns: A PROGRESS message, if one is due.
    mutating func beginPart(_ job: Job, _ key: Int, at number: Int) throws(Violation) -> WorkerMessage? {
        let own = partFileName(job.attempt, number)
        if random.boolean(perMille: 100) { contentVersions[key, default: 1] += 1 }
        if let resume = job.resume {
            guard let file = spool[own], file.bytes == resume.availableBytes, file.tag == resume.validator,
                file.content == JobContent(method: job.method, url: job.url, fields: job.httpFields)
            else { throw Violation(12, "\(job.attempt) goes on with \(spool[own].map { "\($0)" } ?? "nothing")") }
            if file.tag != entityTag(of: key) { spool[own] = nil }
        }
        guard job.method == "GET", catalogue.isStoredInSpool(key), random.boolean(perMille: 600) else { return nil }
        return .progress(
            job.attempt, received: 1, total: catalogue.bodyLength(of: key), part: growPart(job, key, at: number))
    }

    /// Writes more of a body.
    private mutating func growPart(_ job: Job, _ key: Int, at number: Int) -> BodyPart {
        let isResuming = spool[partFileName(job.attempt, number)] != nil && job.resume != nil
        let file = partFileName(job.attempt, number, startsAnew: job.resume != nil && !isResuming)
        let content = JobContent(method: job.method, url: job.url, fields: job.httpFields)
        let begun = spool[file] ?? SimulatedFile(content: content, tag: entityTag(of: key), bytes: 0)
        let rest = catalogue.bodyLength(of: key) - begun.bytes
        spool[file] = SimulatedFile(
            content: content, tag: begun.tag, bytes: begun.bytes + (rest > 0 ? 1 + random.number(below: rest) : 0))
        return BodyPart(fileName: file, httpFields: isResuming ? [] : entityTagFields(of: begun.tag))
    }

    /// Returns the partial body of a transfer that a worker abandons.
    mutating func abandonedPart(_ job: Job, at number: Int) -> BodyPart? {
        let own = partFileName(job.attempt, number)
        let continued = partFileName(job.attempt, number, startsAnew: true)
        let file = spool[continued] == nil ? own : continued
        if let known = spool[file] { return BodyPart(fileName: file, httpFields: entityTagFields(of: known.tag)) }
        guard let key = contentKey(of: job), catalogue.isStoredInSpool(key), job.method == "GET",
            random.boolean(perMille: 500)
        else {
            return nil
        }
        return growPart(job, key, at: number)
    }

    /// Handles a complete body.
    /// - Returns: Whether it resumed the lent partial body.
    mutating func completePart(_ job: Job, at number: Int) -> Bool {
        let own = spool.removeValue(forKey: partFileName(job.attempt, number))
        spool[partFileName(job.attempt, number, startsAnew: true)] = nil
        guard let own, let key = contentKey(of: job) else { return false }
        return job.resume != nil && own.tag == entityTag(of: key)
    }

    // MARK: Shell

    /// Stores the partial body of an attempt that ended.
    mutating func keepParts(after message: WorkerMessage, _ link: UInt64) throws(Violation) {
        try keepWorkerParts(trial.broker.fileWork(before: message, by: WorkerID(rawValue: link)).unfinishedFiles, link)
    }

    /// Stores the partial bodies of a dead worker.
    mutating func keepParts(of link: UInt64) throws(Violation) {
        try keepWorkerParts(trial.broker.fileWork(beforeLossOf: WorkerID(rawValue: link)).unfinishedFiles, link)
    }

    private mutating func keepWorkerParts(_ parts: [WorkerFileOperations.UnfinishedFile], _ link: UInt64)
        throws(Violation)
    {
        for part in parts {
            guard let number = links[link]?.peerNumber, let kept = part.newFileName,
                part.fileName == partFileName(part.attempt, number)
                    || part.fileName == partFileName(part.attempt, number, startsAnew: true),
                let left = spool.removeValue(forKey: part.fileName), left.bytes > 0
            else { continue }
            spool[kept] = left
            try handle(.partKept(WorkerID(rawValue: link), part.attempt, bytes: left.bytes))
        }
    }

    /// Removes files that no worker holds.
    mutating func sweepSpool() {
        for name in spool.keys where name.hasSuffix(".part") {
            let words = name.drop { $0 != "-" }.dropFirst().split(separator: ".")
            guard let attempt = AttemptID(words.prefix(3).joined(separator: ".")),
                !trial.broker.core.isAttemptRunning(attempt)
            else { continue }
            storePart(name)
        }
    }

    mutating func renameSpoolFile(_ file: String, to other: String) {
        spool[other] = spool.removeValue(forKey: file)
        recordedParts[other] = recordedParts.removeValue(forKey: file)
    }

    /// Moves a recorded body to the folder of parts, and removes another one.
    mutating func storePart(_ file: String) {
        guard let body = spool.removeValue(forKey: file), let (keys, part) = recordedParts.removeValue(forKey: file)
        else { return }
        storedParts[keys.keyTexts[0]] = StoredPart(file: body, part: part)
    }

    /// Sends a JOB with the part that its attempt resumes, if there is one.
    mutating func sendResumingJob(_ job: Job, _ keys: PartKeys, at id: WorkerID) -> BrokerEvent? {
        var job = job
        var event: BrokerEvent?
        if let peer = links[id.rawValue]?.peerNumber, let stored = storedParts[keys.keyTexts[0]],
            stored.file.bytes <= job.maximumBodyBytes ?? .max
        {
            storedParts[keys.keyTexts[0]] = nil
            let file = partFileName(job.attempt, peer)
            spool[file] = stored.file
            recordedParts[file] = (keys, stored.part)
            job.resume = Job.Resume(
                availableBytes: stored.file.bytes, totalBytes: stored.part.totalBytes, validator: stored.part.validator)
            event = .partFound(id, job.attempt, stored.part, bytes: stored.file.bytes)
        }
        planArrival(atPeerOver: id.rawValue, .messageToWorker(link: id.rawValue, .job(job)))
        return event
    }
}

/// File with a complete or partial body.
struct SimulatedFile {
    /// Requested content.
    var content: JobContent
    /// Entity tag of the version whose bytes it contains.
    var tag: String
    var bytes: Int
}

/// Partial body that outlived its flight.
struct StoredPart {
    var file: SimulatedFile
    var part: PartDescription
}

/// A transfer that ended by itself, as `Multi.takeFinished()` hands it over.
public struct FinishedTransfer {
    public let transfer: Transfer
    /// Whom the bytes went to.
    public let sink: any TransferSink
    public let result: TransferResult
}

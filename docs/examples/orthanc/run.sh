#!/bin/bash
# Start an archive, score what arrives, and send the results back. A result that is sent twice is the same instance.
mkdir -p in
Orthanc orthanc.json &
monai-afire watch in out --saved dicom sr &
while sleep 10; do
    find out/dicom out/sr -name "*.dcm" | while read -r file; do
        [ "$file.sent" -nt "$file" ] && continue
        storescu -aec ARCHIVE localhost 4242 "$file" < /dev/null && touch "$file.sent"
    done
done
